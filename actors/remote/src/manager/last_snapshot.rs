//! The last snapshot of an actor, at its owner.

use std::sync::Arc;

use fiber_core::{Error, Result};
use fiber_values::codec::EncodedValue;
use tokio::sync::watch;

use fiber_runtime::durable::{Change, DurableState};

/// The slot of an actor's snapshot.
const SLOT: u64 = 0;

/// Is called when a snapshot counts, or a later one.
type Waiter = Box<dyn FnOnce() + Send + Sync>;

/// The last snapshot of an actor. A durable one counts when it is recorded.
pub(super) struct LastSnapshot {
    status: watch::Sender<Status>,
    durable: Option<DurableState>,
}

#[derive(Default)]
struct Status {
    counts: Option<EncodedValue>,
    is_recording: bool,
    /// The newest of the snapshots that arrived while another one is being recorded.
    next: Option<EncodedValue>,
    /// The waiters for the snapshot that is being recorded, and those for the next one.
    waiters: [Vec<Waiter>; 2],
    failed: Option<Error>,
}

impl LastSnapshot {
    /// Returns the snapshot that a durable state has, or none.
    pub(super) fn new(durable: Option<DurableState>) -> Result<Arc<LastSnapshot>> {
        let recorded = durable.as_ref().map(|state| state.read(&state.slots())).transpose()?;
        let counts = recorded.into_iter().flatten().find(|(slot, _)| *slot == SLOT);
        let status = Status { counts: counts.map(|(_, snapshot)| snapshot), ..Status::default() };
        Ok(Arc::new(LastSnapshot { status: watch::Sender::new(status), durable }))
    }

    /// Lets another durable actor have the name.
    pub(super) fn release(&self) {
        self.durable.iter().for_each(DurableState::release);
    }

    /// Sets the last snapshot. `waiter` is called when it counts.
    pub(super) fn set(self: &Arc<Self>, snapshot: EncodedValue, waiter: Option<Waiter>) {
        if self.durable.is_none() {
            self.status.send_modify(|status| status.counts = Some(snapshot));
            waiter.into_iter().for_each(|waiter| waiter());
            return;
        }
        let mut now = None;
        self.status.send_modify(|status| {
            status.waiters[usize::from(status.is_recording)].extend(waiter);
            if status.is_recording {
                status.next = Some(snapshot);
            } else {
                status.is_recording = true;
                now = Some(snapshot);
            }
        });
        if let Some(snapshot) = now {
            self.record(snapshot);
        }
    }

    fn record(self: &Arc<Self>, snapshot: EncodedValue) {
        let Some(durable) = &self.durable else { return };
        let this = Arc::clone(self);
        let change = Change::Put { slots: durable.slots(), slot: SLOT, value: snapshot.clone() };
        durable.record(vec![change], move |result| this.recorded(snapshot, result));
    }

    fn recorded(self: &Arc<Self>, snapshot: EncodedValue, result: Result<()>) {
        let (mut next, mut waiters) = (None, Vec::new());
        self.status.send_modify(|status| {
            match result {
                Ok(()) => {
                    status.counts = Some(snapshot);
                    next = status.next.take();
                    waiters = std::mem::take(&mut status.waiters[0]);
                    status.waiters.swap(0, 1);
                }
                Err(error) => {
                    status.next = None;
                    status.waiters = Default::default();
                    status.failed = Some(error);
                }
            }
            status.is_recording = next.is_some();
        });
        waiters.into_iter().for_each(|waiter| waiter());
        if let Some(snapshot) = next {
            self.record(snapshot);
        }
    }

    /// Returns the last of the snapshots that have arrived, when it counts.
    ///
    /// # Errors
    /// [`Error::Journal`] if a snapshot could not be recorded.
    pub(super) async fn get(&self) -> Result<Option<EncodedValue>> {
        let mut status = self.status.subscribe();
        let status = status.wait_for(|status| !status.is_recording).await;
        let status = status.expect("the sender lives in `self`");
        status.failed.clone().map_or_else(|| Ok(status.counts.clone()), Err)
    }

    /// Waits for a snapshot that can't be recorded.
    pub(super) async fn failed(&self) -> Error {
        let mut status = self.status.subscribe();
        let status = status.wait_for(|status| status.failed.is_some()).await;
        status.expect("the sender lives in `self`").failed.clone().expect("it was waited for")
    }
}
