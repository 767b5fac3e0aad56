//! The keys of tasks that were submitted and are not completed.

use std::ops::{Deref, Range};
use std::sync::Arc;

use fiber_core::SortedMap;
use fiber_journal::TaskKey;
use parking_lot::Mutex;

/// Keys of submitted runs, by the first task of each. A run's keys are dropped when its last task
/// completes.
#[derive(Default)]
pub(super) struct TaskKeys(Mutex<SortedMap<u64, Submitted>>);

struct Submitted {
    keys: Arc<Vec<TaskKey>>,
    /// Tasks that are not completed.
    left: usize,
}

/// The keys of consecutive tasks.
pub(super) struct RunKeys {
    keys: Arc<Vec<TaskKey>>,
    range: Range<usize>,
}

impl Deref for RunKeys {
    type Target = [TaskKey];

    fn deref(&self) -> &[TaskKey] {
        &self.keys[self.range.clone()]
    }
}

impl TaskKeys {
    /// Adds the keys of a run, before it is submitted.
    pub(super) fn insert(&self, first: u64, keys: Vec<TaskKey>) {
        let left = keys.len();
        self.0.lock().insert(first, Submitted { keys: Arc::new(keys), left });
    }

    /// Takes the keys of completed tasks, which are a part of one submitted run.
    pub(super) fn take(&self, completed: Range<u64>) -> RunKeys {
        let mut runs = self.0.lock();
        let (first, run) = runs.last_until(&completed.start).expect("it was inserted");
        let first = *first;
        let range = (completed.start - first) as usize..(completed.end - first) as usize;
        run.left -= range.len();
        let keys = Arc::clone(&run.keys);
        if run.left == 0 {
            runs.remove(&first);
        }
        RunKeys { keys, range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(task: u64) -> TaskKey {
        TaskKey(u128::from(task).to_le_bytes())
    }

    #[test]
    fn each_task_has_its_key_until_its_run_is_completed() {
        let keys = TaskKeys::default();
        for run in [0..10, 10..15, 20..30] {
            keys.insert(run.start, run.map(key).collect());
        }
        for completed in [4..10, 22..23, 10..15, 0..4, 23..30, 20..22] {
            assert_eq!(*keys.take(completed.clone()), *completed.map(key).collect::<Vec<_>>());
        }
        assert!(keys.0.lock().is_empty());
    }
}
