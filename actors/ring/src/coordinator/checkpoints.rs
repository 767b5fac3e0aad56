//! The checkpoints and results of the ranks.

use std::sync::Arc;

use bytes::Bytes;
use fiber_values::codec::EncodedValue;

use super::Coordinator;

impl Coordinator {
    /// Stores a rank's state in a checkpoint, which counts at once, or when it is recorded.
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
            let state = EncodedValue { bytes, ..state };
            return self.checkpoint_stored(rank, attempt, number, state);
        };
        let coordinator = Arc::clone(self);
        recorded.checkpoint(attempt, rank, number, state, move |state, result| match result {
            Ok(()) => coordinator.checkpoint_stored(rank, attempt, number, state),
            Err(error) => coordinator.end(Err(error)),
        });
    }

    fn checkpoint_stored(
        self: &Arc<Self>,
        rank: usize,
        attempt: u64,
        number: u64,
        state: EncodedValue,
    ) {
        let is_recorded = self.recorded.is_some();
        self.change(|run, effects| {
            run.checkpoint_stored((rank, attempt), number, state, is_recorded, effects);
        });
    }

    /// Removes recorded checkpoints, by rank and number.
    pub(super) fn remove_checkpoints(self: &Arc<Self>, outdated: Vec<(usize, u64)>) {
        let Some(recorded) = &self.recorded else { return };
        let coordinator = Arc::clone(self);
        recorded.remove(outdated, move |result| {
            if let Err(error) = result {
                coordinator.end(Err(error));
            }
        });
    }

    /// Ends the run with the values of all ranks, now or when they are recorded. Removes these
    /// recorded checkpoints.
    pub(super) fn finish(
        self: &Arc<Self>,
        values: Vec<EncodedValue>,
        checkpoints: Vec<(usize, u64)>,
    ) {
        let Some(recorded) = &self.recorded else { return self.end(Ok(values)) };
        let (coordinator, results) = (Arc::clone(self), values.clone());
        recorded.finish(&values, checkpoints, move |result| {
            coordinator.end(result.map(|()| results));
        });
    }
}
