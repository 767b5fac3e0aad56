//! What holds at any time, and the expected suspects.

use std::collections::BTreeSet;

use super::{Model, Task, WorkerId};

/// Into how many parts the tasks of a dead worker are split.
const PARTS: u64 = 64;

impl Model {
    /// Notes that a worker with these tasks has died.
    pub(super) fn note_death(&mut self, worker: WorkerId, pending: &[Task]) {
        let count = pending.len() as u64;
        // `None` if one is no suspect.
        let part = pending.iter().map(|task| self.parts.get(task).copied()).min().flatten();
        let is_certain =
            count == 1 || (count <= self.threads[&worker] && part.is_none_or(|part| part == 1));
        let smaller = part.map_or(u64::MAX, |part| part - 1);
        let next = if is_certain { 1 } else { count.div_ceil(PARTS).min(smaller).max(1) };
        for task in pending {
            *self.certain_deaths.entry(*task).or_default() += u32::from(is_certain);
            self.parts.insert(*task, next);
        }
    }

    pub(super) fn check(&self) {
        let mut seen = BTreeSet::new();
        for task in self.workers.values().flatten() {
            assert!(seen.insert(*task), "{task:?} is pending at two workers");
            assert!(!self.completed.contains(task), "{task:?} is complete and runs again");
        }
        for pending in self.workers.values() {
            let parts: Vec<_> = pending.iter().map(|task| self.parts.get(task)).collect();
            if let Some(least) = parts.iter().flatten().min() {
                assert!(parts.iter().all(Option::is_some), "a suspect runs beside others");
                assert!(pending.len() as u64 <= **least, "more run together than a part has");
            }
        }
    }
}
