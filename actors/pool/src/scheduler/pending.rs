//! The runs that a worker has received, and whose outcomes have not arrived.

use std::collections::VecDeque;

use crate::run::{CallId, Run};

/// Pending runs in the order of their calls and tasks. Most are added at the end and taken from the
/// front.
#[derive(Default)]
pub(super) struct Pending(VecDeque<Run>);

impl Pending {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.0.iter()
    }

    pub(super) fn into_runs(self) -> VecDeque<Run> {
        self.0
    }

    /// Adds a run. None of its tasks is pending.
    pub(super) fn insert(&mut self, run: Run) {
        self.0.insert(self.place(run.call, run.start), run);
    }

    /// Returns the run that contains a task.
    pub(super) fn find(&self, call: CallId, index: u64) -> Option<&Run> {
        let run = self.0.get(self.place(call, index))?;
        (run.call == call && run.contains(index)).then_some(run)
    }

    /// Returns whether tasks of a call are pending.
    pub(super) fn has(&self, call: CallId) -> bool {
        self.0.get(self.place(call, 0)).is_some_and(|run| run.call == call)
    }

    /// Takes those of the tasks `from..to` that are pending.
    pub(super) fn take(&mut self, call: CallId, from: u64, to: u64) -> Vec<Run> {
        let mut taken = Vec::new();
        let mut place = self.place(call, from);
        while from < to
            && let Some(run) = self.0.get(place)
            && run.call == call
            && run.start < to
        {
            let (inside, before, after) = self.0.remove(place).expect("it is there").cut(from, to);
            taken.extend(inside);
            for rest in [before, after].into_iter().flatten() {
                self.0.insert(place, rest);
                place += 1;
            }
        }
        taken
    }

    /// Returns the place of the first run with tasks of `call` from `index` on, or of a later call.
    fn place(&self, call: CallId, index: u64) -> usize {
        self.0.partition_point(|run| (run.call, run.end) <= (call, index))
    }
}
