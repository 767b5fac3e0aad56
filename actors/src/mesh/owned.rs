//! What the owner of an actor in another process knows of it.

use std::sync::Arc;

use fiber_core::ExitReason;
use tokio::sync::watch;

use super::wire::{ActorId, ProcessRef};

/// An actor that this node has started in a process of its own, and starts again.
pub(crate) struct Owned {
    id: ActorId,
    standing: watch::Sender<Standing>,
}

/// Where it stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// The incarnation that was started last; the first is 1.
    pub(crate) incarnation: u64,
    /// Where it is, while it is there.
    pub(crate) up: Option<ProcessRef>,
    /// The incarnation that ended last, and why.
    pub(crate) ended: Option<(u64, ExitReason)>,
    /// Why it will not be started again.
    pub(crate) gone: Option<ExitReason>,
}

impl Owned {
    pub(crate) fn new(id: ActorId) -> Arc<Owned> {
        Arc::new(Owned { id, standing: watch::Sender::default() })
    }

    pub(crate) fn id(&self) -> ActorId {
        self.id
    }

    /// Its next incarnation is there; its number is given.
    pub(crate) fn up(&self, runtime: ProcessRef) -> u64 {
        let mut incarnation = 0;
        self.standing.send_modify(|standing| {
            standing.incarnation += 1;
            standing.up = Some(runtime);
            incarnation = standing.incarnation;
        });
        incarnation
    }

    /// An incarnation has ended.
    pub(crate) fn down(&self, incarnation: u64, reason: ExitReason) {
        self.standing.send_modify(|standing| {
            if standing.incarnation == incarnation {
                standing.up = None;
            }
            standing.ended = Some((incarnation, reason));
        });
    }

    /// It will not be started again.
    pub(crate) fn gone(&self, reason: ExitReason) {
        self.standing.send_modify(|standing| {
            standing.up = None;
            standing.gone.get_or_insert(reason);
        });
    }

    /// The incarnation that is there, or else the next.
    pub(crate) fn current(&self) -> u64 {
        let standing = self.standing.borrow();
        if standing.up.is_some() || standing.gone.is_some() {
            standing.incarnation
        } else {
            standing.incarnation + 1
        }
    }

    /// Waits until it stands as is wanted.
    pub(crate) async fn when(&self, wanted: impl Fn(&Standing) -> bool) -> Standing {
        let mut standing = self.standing.subscribe();
        let standing = standing.wait_for(|standing| wanted(standing)).await;
        standing.expect("the sender lives in `self`").clone()
    }
}
