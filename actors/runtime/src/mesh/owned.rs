//! The state of an actor in another process, for its owner.

use std::num::NonZeroU32;
use std::sync::Arc;

use fiber_core::{ExitReason, ProcessId};
use tokio::sync::watch;

use super::wire::{ActorId, ProcessRef};

/// An actor that this process has started in a process of its own, and restarts.
pub struct OwnedActor {
    id: ActorId,
    places: Option<NonZeroU32>,
    status: watch::Sender<ActorStatus>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ActorStatus {
    /// The number of the incarnation that was started last. The first is 1.
    pub(crate) incarnation: u64,
    /// The process of the actor, while it runs.
    pub(crate) process: Option<ProcessRef>,
    /// The incarnation that ended last, and the reason.
    pub(crate) ended: Option<(u64, ExitReason)>,
    /// The reason why the actor will not be restarted.
    pub(crate) gone: Option<ExitReason>,
}

impl OwnedActor {
    /// Returns the state of an actor that was not started yet.
    pub(crate) fn new(id: ActorId, places: Option<NonZeroU32>) -> Arc<OwnedActor> {
        Arc::new(OwnedActor { id, places, status: watch::Sender::default() })
    }

    /// Returns how many places the mailbox has for the messages of each process, if these wait for
    /// one.
    pub fn places(&self) -> Option<NonZeroU32> {
        self.places
    }

    /// Returns the number of the actor in this process, by which queries name it.
    pub fn id(&self) -> ActorId {
        self.id
    }

    /// Records that the next incarnation runs. Returns its number.
    pub fn started(&self, process: ProcessRef) -> u64 {
        let mut incarnation = 0;
        self.status.send_modify(|status| {
            status.incarnation += 1;
            status.process = Some(process);
            incarnation = status.incarnation;
        });
        incarnation
    }

    /// Records that an incarnation has ended.
    pub fn ended(&self, incarnation: u64, reason: ExitReason) {
        self.status.send_modify(|status| {
            if status.incarnation == incarnation {
                status.process = None;
            }
            status.ended = Some((incarnation, reason));
        });
    }

    /// Records that the actor will not be restarted.
    pub fn gone(&self, reason: ExitReason) {
        self.status.send_modify(|status| {
            status.process = None;
            status.gone.get_or_insert(reason);
        });
    }

    /// Returns the process of the actor, while it runs.
    pub(super) fn process(&self) -> Option<ProcessId> {
        self.status.borrow().process.as_ref().map(|process| process.id)
    }

    /// Returns whether the actor will not be restarted.
    pub fn is_gone(&self) -> bool {
        self.status.borrow().gone.is_some()
    }

    /// Returns the incarnation that runs, or else the next one.
    pub(crate) fn current(&self) -> u64 {
        let status = self.status.borrow();
        if status.process.is_some() || status.gone.is_some() {
            status.incarnation
        } else {
            status.incarnation + 1
        }
    }

    /// Waits until the status satisfies a condition.
    pub(crate) async fn when(&self, wanted: impl Fn(&ActorStatus) -> bool) -> ActorStatus {
        let mut status = self.status.subscribe();
        let status = status.wait_for(|status| wanted(status)).await;
        status.expect("the sender lives in `self`").clone()
    }
}
