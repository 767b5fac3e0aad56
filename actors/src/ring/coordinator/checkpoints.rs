//! The checkpoints and results of the ranks.

use std::sync::Arc;

use bytes::Bytes;
use fiber_core::Result;
use fiber_core::codec::EncodedValue;

use super::super::wire::CoordinatorMessage;
use super::Coordinator;

impl Coordinator {
    /// Handles a rank's state in a checkpoint, which counts at once, or when it is recorded.
    pub(super) fn take_checkpoint(
        self: &Arc<Self>,
        rank: usize,
        attempt: u64,
        number: u64,
        state: EncodedValue,
    ) {
        let Some(recorded) = &self.recorded else {
            // A copy: the message may share a large buffer with others, which it would keep.
            let bytes = Bytes::copy_from_slice(&state.bytes);
            self.count_checkpoint(rank, attempt, number, EncodedValue { bytes, ..state });
            return;
        };
        let coordinator = Arc::clone(self);
        recorded.checkpoint(attempt, rank, number, state, move |state, result| match result {
            Ok(()) => coordinator.checkpoint_recorded(rank, attempt, number, state),
            Err(error) => coordinator.end(Err(error)),
        });
    }

    fn checkpoint_recorded(
        self: &Arc<Self>,
        rank: usize,
        attempt: u64,
        number: u64,
        state: EncodedValue,
    ) {
        let outdated = self.count_checkpoint(rank, attempt, number, state);
        if let Some(recorded) = self.recorded.as_ref().filter(|_| !outdated.is_empty()) {
            let coordinator = Arc::clone(self);
            recorded.remove(outdated, move |result| coordinator.check(result));
        }
    }

    /// Adds a checkpoint of a rank, and removes those before the last one that all ranks have
    /// taken. Returns their ranks and numbers.
    fn count_checkpoint(
        &self,
        rank: usize,
        attempt: u64,
        number: u64,
        state: EncodedValue,
    ) -> Vec<(usize, u64)> {
        let mut run = self.run.lock();
        if run.attempt != attempt || run.outcome.is_some() {
            return Vec::new();
        }
        run.checkpoints[rank].insert(number, state);
        if self.recorded.is_some()
            && let Some(link) = &run.ranks[rank].link
        {
            let _ = link.send(CoordinatorMessage::CheckpointRecorded(number).encode());
        }
        let mut outdated = Vec::new();
        if let Some(last) = run.last_checkpoint() {
            for (rank, taken) in run.checkpoints.iter_mut().enumerate() {
                let kept = taken.split_off(&last);
                outdated.extend(taken.keys().map(|number| (rank, *number)));
                *taken = kept;
            }
        }
        outdated
    }

    /// Ends the run with the values of all ranks, now or when they are recorded.
    pub(super) fn finish(self: &Arc<Self>, values: Vec<EncodedValue>) {
        let Some(recorded) = &self.recorded else { return self.end(Ok(values)) };
        let mut run = self.run.lock();
        run.is_finishing = true;
        // Some of these numbers may be of another attempt, which had come further.
        let first = run.last_checkpoint().unwrap_or(1);
        let numbers = first..=run.last_taken;
        let ranks = 0..run.ranks.len();
        drop(run);
        let checkpoints =
            ranks.flat_map(|rank| numbers.clone().map(move |number| (rank, number))).collect();
        let (coordinator, results) = (Arc::clone(self), values.clone());
        recorded.finish(&values, checkpoints, move |result| {
            coordinator.end(result.map(|()| results));
        });
    }

    fn check(self: &Arc<Self>, recorded: Result<()>) {
        if let Err(error) = recorded {
            self.end(Err(error));
        }
    }
}
