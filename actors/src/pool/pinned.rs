//! KeepAlive of the objects that the arguments of a call's tasks refer to.
//!
//! A pin keeps an object alive while only an encoded handle refers to it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_core::transfer::KeepAlive;
use parking_lot::Mutex;

use crate::runtime::Runtime;

/// How long the keep_alive of a cancelled call's tasks stay: such a task may be on its way to a worker, and
/// attach to its objects when it starts.
const GRACE: Duration = Duration::from_secs(5);

/// The keep_alive of tasks that are not completed.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    /// Whether any task has keep_alive. Most calls have none.
    any: AtomicBool,
    tasks: Mutex<BTreeMap<u64, KeepAlive>>,
}

impl Pinned {
    /// Adds the keep_alive of a task, before it is submitted.
    pub(super) fn add(&self, task: u64, keep_alive: KeepAlive) {
        if !keep_alive.is_empty() {
            self.tasks.lock().insert(task, keep_alive);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Drops the keep_alive of tasks that are completed.
    #[inline]
    pub(super) fn release(&self, completed: Range<u64>) {
        if self.any.load(Ordering::Acquire) {
            let released: Vec<_> = self.tasks.lock().extract_if(completed, |_, _| true).collect();
            // Dropping keep_alive may end their objects, so the lock is free by now.
            drop(released);
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let left = std::mem::take(self.tasks.get_mut());
        if !left.is_empty()
            && let Some(runtime) = Runtime::current()
        {
            // Workers may run these tasks, or be about to start them.
            runtime.spawn(move || async move {
                tokio::time::sleep(GRACE).await;
                drop(left);
            });
        }
    }
}
