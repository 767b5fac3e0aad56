//! Keep-alives of the objects that the arguments of a call's tasks refer to.
//!
//! An encoded handle does not keep its object alive. The call holds a [`KeepAlive`] for each task
//! that has such handles, until the task completes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_core::SortedMap;
use fiber_values::transfer::KeepAlive;
use parking_lot::Mutex;

use fiber_runtime::runtime::Runtime;

/// How long the keep-alives of a cancelled call's tasks stay: such a task may be on its way to a
/// worker, and attach to its objects when it starts.
const GRACE: Duration = Duration::from_secs(5);

/// The keep-alives of tasks that are not completed.
pub(super) struct TaskKeepAlives {
    runtime: &'static Runtime,
    /// Whether any task has one. Most calls have none.
    any: AtomicBool,
    tasks: Mutex<SortedMap<u64, KeepAlive>>,
}

impl TaskKeepAlives {
    pub(super) fn new(runtime: &'static Runtime) -> TaskKeepAlives {
        TaskKeepAlives { runtime, any: AtomicBool::new(false), tasks: Mutex::default() }
    }

    /// Adds the keep-alive of a task, before it is submitted.
    #[inline]
    pub(super) fn add(&self, task: u64, keep_alive: KeepAlive) {
        if !keep_alive.is_empty() {
            self.tasks.lock().insert(task, keep_alive);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Takes the keep-alive of a task.
    pub(super) fn take(&self, task: u64) -> KeepAlive {
        if !self.any.load(Ordering::Acquire) {
            return KeepAlive::default();
        }
        self.tasks.lock().remove(&task).unwrap_or_default()
    }

    /// Drops the keep-alives of tasks that are completed.
    #[inline]
    pub(super) fn release(&self, completed: Range<u64>) {
        if self.any.load(Ordering::Acquire) {
            let mut tasks = self.tasks.lock();
            let released: Vec<_> = completed.filter_map(|index| tasks.remove(&index)).collect();
            // Dropping a keep-alive may end its object, so the lock is free by then.
            drop(tasks);
            drop(released);
        }
    }
}

impl Drop for TaskKeepAlives {
    fn drop(&mut self) {
        let left = std::mem::take(self.tasks.get_mut());
        if !left.is_empty() {
            // Workers may run these tasks, or be about to start them.
            self.runtime.spawn(move || async move {
                tokio::time::sleep(GRACE).await;
                drop(left);
            });
        }
    }
}
