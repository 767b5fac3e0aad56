//! The last snapshot of an actor, at its owner.

use std::sync::{Arc, OnceLock};

use fiber_core::{Error, Result};
use fiber_values::codec::EncodedValue;
use parking_lot::Mutex;
use tokio::sync::Notify;

use fiber_runtime::durable::{Change, DurableState};

/// The slot of an actor's snapshot.
const SLOT: u64 = 0;

/// Is called when a snapshot counts, or a later one.
type Waiter = Box<dyn FnOnce() + Send>;

/// Is called when a snapshot could not be recorded.
type OnFailure = Box<dyn Fn(&Error) + Send + Sync>;

/// The last snapshot of an actor. A durable one counts when it is recorded.
pub(super) struct LastSnapshot {
    status: Mutex<Status>,
    /// A snapshot was recorded, or could not be.
    recorded: Notify,
    on_failure: OnceLock<OnFailure>,
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
        Ok(Arc::new(LastSnapshot {
            status: Mutex::new(status),
            recorded: Notify::new(),
            on_failure: OnceLock::new(),
            durable,
        }))
    }

    /// Calls a function when a snapshot can't be recorded.
    pub(super) fn on_failure(&self, call: impl Fn(&Error) + Send + Sync + 'static) {
        if self.durable.is_some() {
            let _ = self.on_failure.set(Box::new(call));
        }
    }

    /// Lets another durable actor have the name.
    pub(super) fn release(&self) {
        self.durable.iter().for_each(DurableState::release);
    }

    /// Sets the last snapshot. `waiter` is called when it counts.
    pub(super) fn set(self: &Arc<Self>, mut snapshot: EncodedValue, waiter: Option<Waiter>) {
        snapshot.bytes = fiber_transport::unshared(snapshot.bytes);
        if self.durable.is_none() {
            self.status.lock().counts = Some(snapshot);
            waiter.into_iter().for_each(|waiter| waiter());
            return;
        }
        let mut status = self.status.lock();
        let place = usize::from(status.is_recording);
        status.waiters[place].extend(waiter);
        if status.is_recording {
            status.next = Some(snapshot);
        } else {
            status.is_recording = true;
            drop(status);
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
        let failed = result.as_ref().err().cloned();
        let (next, waiters) = {
            let mut status = self.status.lock();
            let waiters = std::mem::take(&mut status.waiters[0]);
            status.waiters.swap(0, 1);
            match result {
                Ok(()) => status.counts = Some(snapshot),
                Err(error) => {
                    status.next = None;
                    status.waiters = Default::default();
                    status.failed = Some(error);
                }
            }
            let next = status.next.take();
            status.is_recording = next.is_some();
            (next, waiters)
        };
        match (failed, self.on_failure.get()) {
            (Some(error), Some(on_failure)) => on_failure(&error),
            (Some(_), None) => {}
            (None, _) => waiters.into_iter().for_each(|waiter| waiter()),
        }
        self.recorded.notify_waiters();
        if let Some(snapshot) = next {
            self.record(snapshot);
        }
    }

    /// Returns the last of the snapshots that have arrived, when it counts.
    ///
    /// # Errors
    /// [`Error::Journal`] if a snapshot could not be recorded.
    pub(super) async fn get(&self) -> Result<Option<EncodedValue>> {
        loop {
            let recorded = self.recorded.notified();
            {
                let status = self.status.lock();
                if !status.is_recording {
                    return status.failed.clone().map_or_else(|| Ok(status.counts.clone()), Err);
                }
            }
            recorded.await;
        }
    }

    /// Returns the last snapshot that counts.
    pub(super) fn now(&self) -> Option<EncodedValue> {
        self.status.lock().counts.clone()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_small_snapshot_keeps_no_other_bytes_that_came_with_it() {
        let received = Bytes::from(vec![0; 64 << 10]);
        let last = LastSnapshot::new(None).unwrap();
        let bytes = received.slice(..12);
        last.set(EncodedValue { bytes, ..EncodedValue::default() }, None);
        assert!(received.is_unique());
        assert_eq!(last.now().unwrap().size(), 12);
    }
}
