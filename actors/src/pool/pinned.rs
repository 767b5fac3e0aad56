//! What the arguments of a call's tasks need while they may be run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_core::travel::Pins;
use parking_lot::Mutex;

use crate::runtime::Runtime;

/// How long the tasks of a call that nobody waits for may take to begin, if they are on their way
/// to a worker.
const BEGINNING: Duration = Duration::from_secs(5);

/// The pins of tasks that are not settled.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    /// Whether there ever were any: most calls have none.
    any: AtomicBool,
    tasks: Mutex<BTreeMap<u64, Pins>>,
}

impl Pinned {
    /// Keeps the pins of a task, before it is submitted.
    pub(super) fn add(&self, task: u64, pins: Pins) {
        if !pins.is_empty() {
            self.tasks.lock().insert(task, pins);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Lets go of the pins of tasks that are settled.
    #[inline]
    pub(super) fn release(&self, settled: Range<u64>) {
        if self.any.load(Ordering::Acquire) {
            let settled: Vec<_> = self.tasks.lock().extract_if(settled, |_, _| true).collect();
            // What they keep may end with them, so the lock is free by now.
            drop(settled);
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let left = std::mem::take(self.tasks.get_mut());
        if !left.is_empty()
            && let Some(runtime) = Runtime::current()
        {
            // Workers may have begun, or be about to begin, what was cancelled.
            runtime.spawn(move || async move {
                tokio::time::sleep(BEGINNING).await;
                drop(left);
            });
        }
    }
}
