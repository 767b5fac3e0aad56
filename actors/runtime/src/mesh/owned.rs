//! The state of an actor in another process, for its owner.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use fiber_core::ExitReason;
use tokio::sync::watch;

use super::wire::{ActorId, Ends, ProcessRef};

/// An actor that this process has started in another one, and restarts.
pub struct OwnedActor {
    /// The number of the actor in this process, by which queries name it.
    pub id: ActorId,
    /// The name, for messages to people.
    pub name: Arc<str>,
    /// How many places the mailbox has for the messages of each process, if these wait for one.
    pub places: Option<NonZeroU32>,
    status: watch::Sender<ActorStatus>,
}

/// How many ends of an actor are kept for watchers, which hear of them after a round trip.
const ENDS: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct ActorStatus {
    /// The number of processes that were started for the actor. The last one has this number.
    pub(crate) incarnation: u64,
    /// The process of the actor, while it runs.
    pub(crate) process: Option<ProcessRef>,
    /// The number of the process that ended last, and the reason.
    pub(crate) ended: Option<(u64, ExitReason)>,
    /// Whether the actor itself runs in the process.
    is_up: bool,
    /// The number of ends of the actor, by itself in its process or with that.
    ends: u64,
    /// The reasons of the last of them.
    reasons: VecDeque<ExitReason>,
    /// The reason why the actor will not be restarted.
    pub(crate) gone: Option<ExitReason>,
}

impl ActorStatus {
    fn note_end(&mut self, reason: ExitReason) {
        self.is_up = false;
        self.ends += 1;
        if self.reasons.len() == ENDS {
            self.reasons.pop_front();
        }
        self.reasons.push_back(reason);
    }
}

impl OwnedActor {
    /// Returns the state of an actor that was not started yet.
    pub(crate) fn new(id: ActorId, name: &str, places: Option<NonZeroU32>) -> Arc<OwnedActor> {
        Arc::new(OwnedActor { id, name: name.into(), places, status: watch::Sender::default() })
    }

    /// Records that the next process runs. Returns its number.
    pub fn started(&self, process: ProcessRef) -> u64 {
        let mut incarnation = 0;
        self.status.send_modify(|status| {
            status.incarnation += 1;
            status.is_up = true;
            status.process = Some(process);
            incarnation = status.incarnation;
        });
        incarnation
    }

    /// Records that a process has ended.
    pub fn ended(&self, incarnation: u64, reason: ExitReason) {
        self.status.send_modify(|status| {
            if status.incarnation == incarnation {
                status.process = None;
            }
            if status.is_up {
                status.note_end(reason.clone());
            }
            status.ended = Some((incarnation, reason));
        });
    }

    /// Records that the actor has failed in its process.
    pub fn failed(&self, reason: ExitReason) {
        self.status.send_modify(|status| status.note_end(reason));
    }

    /// Records that the actor runs again in its process.
    pub fn restarted(&self) {
        self.status.send_modify(|status| status.is_up = true);
    }

    /// Records that the actor will not be restarted.
    pub fn gone(&self, reason: ExitReason) {
        self.status.send_modify(|status| {
            status.process = None;
            status.gone.get_or_insert(reason);
        });
    }

    /// Returns how often the actor was started again with a process.
    pub(crate) fn restarts(&self) -> u64 {
        self.status.borrow().incarnation.saturating_sub(1)
    }

    /// Returns whether the actor will not be restarted.
    pub fn is_gone(&self) -> bool {
        self.status.borrow().gone.is_some()
    }

    /// Returns the ends of the actor after the first `after`, once there is one or the actor is gone.
    pub(crate) async fn ends(&self, after: u64) -> Ends {
        let status = self.when(|status| status.ends > after || status.gone.is_some()).await;
        let unknown = usize::try_from(status.ends.saturating_sub(after)).unwrap_or(usize::MAX);
        let known = status.reasons.len().saturating_sub(unknown);
        let reasons = status.reasons.into_iter().skip(known).collect();
        Ends { count: status.ends, reasons, gone: status.gone }
    }

    /// Returns the number of the actor's ends.
    pub(crate) fn end_count(&self) -> u64 {
        self.status.borrow().ends
    }

    /// Waits until the status satisfies a condition.
    pub(crate) async fn when(&self, wanted: impl Fn(&ActorStatus) -> bool) -> ActorStatus {
        let mut status = self.status.subscribe();
        let status = status.wait_for(|status| wanted(status)).await;
        status.expect("the sender lives in `self`").clone()
    }
}
