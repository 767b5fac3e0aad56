//! Outcomes that a journal has, on their way to the caller.

use std::sync::atomic::Ordering;

use fiber_journal::{Outcome, OutcomeKind};
use fiber_values::blob::{Blob, Blobs};

use super::DurableCall;
use super::recording::decode_abandoned;
use crate::batch::ResultBatch;
use crate::exchange::Exchange;
use crate::run::{CallId, PREFIX, Run, push_item};

/// So many tasks or bytes are delivered together.
const BATCH_TASKS: u64 = 4096;
const BATCH_BYTES: usize = 64 << 10;

/// Recorded outcomes of consecutive tasks.
#[derive(Default)]
pub(super) struct Recorded {
    first: u64,
    count: u64,
    bytes: Vec<u8>,
}

impl Recorded {
    /// Adds the outcome of a task. Returns the outcomes so far if the task does not follow them.
    fn add(&mut self, call: CallId, index: u64, outcome: &Outcome) -> Option<ResultBatch> {
        let earlier = if self.first + self.count == index { None } else { self.take(call) };
        if self.count == 0 {
            self.first = index;
        }
        push_item(&mut self.bytes, &outcome.bytes, outcome.kind == OutcomeKind::Failed);
        self.count += 1;
        earlier
    }

    fn is_full(&self) -> bool {
        self.count >= BATCH_TASKS || self.bytes.len() >= BATCH_BYTES
    }

    fn take(&mut self, call: CallId) -> Option<ResultBatch> {
        let (first, end) = (self.first, self.first + self.count);
        (self.first, self.count) = (end, 0);
        let bytes = std::mem::take(&mut self.bytes);
        (first < end).then(|| ResultBatch::of(Run::new(call, first, end, bytes.into())))
    }
}

impl Exchange {
    /// Delivers a recorded outcome, now or with others. Returns whether any was delivered now.
    pub(crate) fn add_recorded(&self, index: u64, outcome: Outcome) -> bool {
        let Some(call) = &self.durable else { return false };
        if outcome.kind == OutcomeKind::Abandoned {
            let error = decode_abandoned(&outcome.bytes, self.function, index);
            self.deliver_recorded(call, ResultBatch::Failed(index, error));
            return true;
        }
        if !outcome.blobs.is_empty() {
            let mut bytes = Vec::with_capacity(PREFIX + outcome.bytes.len());
            push_item(&mut bytes, &outcome.bytes, outcome.kind == OutcomeKind::Failed);
            let blobs = outcome.blobs.into_iter().map(Blob::private).collect::<Vec<_>>();
            let run = Run::with_blobs(self.id, index, bytes.into(), Blobs::from(blobs));
            self.deliver_recorded(call, ResultBatch::of(run));
            return true;
        }
        let mut recorded = call.recorded.lock();
        let earlier = recorded.add(self.id, index, &outcome);
        let full = if recorded.is_full() { recorded.take(self.id) } else { None };
        drop(recorded);
        let batches = earlier.into_iter().chain(full);
        batches.map(|batch| self.deliver_recorded(call, batch)).count() > 0
    }

    /// Delivers the recorded outcomes that wait for others.
    pub(crate) fn deliver_waiting(&self) {
        let Some(call) = &self.durable else { return };
        let batch = call.recorded.lock().take(self.id);
        if let Some(batch) = batch {
            self.deliver_recorded(call, batch);
        }
    }

    fn deliver_recorded(&self, call: &DurableCall, batch: ResultBatch) {
        call.delivered.fetch_add(batch.len(), Ordering::Relaxed);
        if let Some(pool) = call.pool.upgrade() {
            pool.recorded.fetch_add(batch.len(), Ordering::Relaxed);
        }
        self.deliver_added(batch);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn outcomes_of_consecutive_tasks_go_together() {
        let mut recorded = Recorded::default();
        let mut batches = Vec::new();
        for index in [0, 1, 2, 5, 6, 9] {
            let bytes = Bytes::from(vec![index as u8]);
            let outcome = Outcome { kind: OutcomeKind::Returned, bytes, blobs: Vec::new() };
            batches.extend(recorded.add(1, index, &outcome));
        }
        batches.extend(recorded.take(1));
        assert!(recorded.take(1).is_none());
        let tasks: Vec<_> = batches.iter().map(|batch| batch.start()..batch.end()).collect();
        assert_eq!(tasks, [0..3, 5..7, 9..10]);
        let size = (PREFIX + 1) as u64;
        assert!(batches.iter().all(|batch| batch.size() == batch.len() * size));
    }
}
