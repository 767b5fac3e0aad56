//! A managed actor at its owner, whichever process it runs in.

use std::sync::{Arc, OnceLock};

use fiber_core::ExitReason;
use fiber_transport::Link;
use fiber_values::codec::EncodedValue;

use super::last_snapshot::LastSnapshot;
use super::wire::{ActorEvent, Request};
use fiber_runtime::mesh::{ActorId, OwnedActor};
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::supervisor::{Restart, Within};

/// See the module's documentation.
pub(super) struct ManagedActor {
    pub(super) runtime: &'static Runtime,
    pub(super) owned: Arc<OwnedActor>,
    pub(super) restart: Restart,
    pub(super) snapshot: Arc<LastSnapshot>,
    /// The reason of an end that the owner wants, once it does: a stop, or the drop of the last
    /// handle.
    pub(super) wanted: OnceLock<ExitReason>,
}

impl ManagedActor {
    pub(super) fn id(&self) -> ActorId {
        self.owned.id
    }

    /// Notes an event of the actor's process, to which `link` leads. Returns what the tree shows of
    /// it.
    pub(super) fn note(&self, event: ActorEvent, link: &Arc<dyn Link>) -> Option<Within> {
        match event {
            ActorEvent::Snapshot(state) => self.snapshot.set(state, None),
            ActorEvent::AwaitedSnapshot(state) => self.keep_awaited(state, Arc::clone(link)),
            ActorEvent::Failed(reason) => {
                self.owned.failed(reason.clone());
                return Some(Within::Failed(reason));
            }
            ActorEvent::Restarted => {
                self.owned.restarted();
                return Some(Within::Restarted);
            }
            ActorEvent::Started | ActorEvent::NotStarted(_) | ActorEvent::Ended(_) => {}
        }
        None
    }

    fn keep_awaited(&self, state: EncodedValue, link: Arc<dyn Link>) {
        let id = self.id();
        let keeps = move || {
            let _ = link.send(Request::Kept(id).message());
        };
        self.snapshot.set(state, Some(Box::new(keeps)));
    }

    /// Notes that a process with the actor has ended.
    pub(super) async fn ended(&self, incarnation: u64, reason: ExitReason) {
        // The next incarnation, of this program or of the next one, gets what has arrived.
        let _ = self.snapshot.get().await;
        self.owned.ended(incarnation, self.precise(reason));
    }

    /// Ends the actor for good. Its names are free before anybody learns of the end.
    pub(super) fn gone(&self, reason: ExitReason) {
        self.snapshot.release();
        self.runtime.directory().ended(self.id());
        self.owned.gone(self.precise(reason));
    }

    /// Says why a process that was asked to stop was asked.
    fn precise(&self, reason: ExitReason) -> ExitReason {
        match (reason, self.wanted.get()) {
            (ExitReason::Shutdown, Some(wanted)) => wanted.clone(),
            (reason, _) => reason,
        }
    }
}

impl Drop for ManagedActor {
    fn drop(&mut self) {
        self.runtime.registry().retire(self.id());
    }
}
