//! The slot in which a task runs. A task that waits for others of its pool lends it to them: a pool
//! of one worker would otherwise wait for itself.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

/// One of the tasks that a worker runs at the same time.
pub trait Slot: Send + Sync {
    /// Notes that its task waits for one thing more, and lets other tasks run meanwhile. Returns
    /// the number of the task.
    fn wait(&self) -> u64;

    /// Notes that the task with this number waits for one thing less, unless it has ended.
    fn go_on(&self, task: u64);

    /// Notes that its task has ended.
    fn end(&self);
}

thread_local! {
    static SLOT: RefCell<Option<Arc<dyn Slot>>> = const { RefCell::new(None) };
    /// Whether the task has waited.
    static HAS_WAITED: Cell<bool> = const { Cell::new(false) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Makes this the slot of the tasks that this thread runs.
pub fn occupy(slot: Arc<dyn Slot>) {
    SLOT.set(Some(slot));
}

/// Sets how many tasks are around the calls that this thread makes: each waits for the next.
pub fn set_depth(depth: u32) {
    DEPTH.set(depth);
}

/// Returns how many tasks are around the calls that this thread makes; 0 in a program's own
/// threads.
pub fn depth() -> u32 {
    DEPTH.get()
}

/// A task waits for one thing, until this is dropped.
pub struct Waiting {
    slot: Arc<dyn Slot>,
    task: u64,
}

impl Waiting {
    /// Notes whether the task on this thread waits for `outcome`. A future keeps `waiting` between
    /// two polls.
    ///
    /// The slot is lent until the outcome is there, also while the task does something else: one
    /// that waits for many futures at once polls those alone that are woken.
    pub fn note<T>(waiting: &mut Option<Waiting>, outcome: &Poll<T>) {
        if outcome.is_ready() {
            *waiting = None;
        } else if waiting.is_none() {
            *waiting = Waiting::begin();
        }
    }

    fn begin() -> Option<Waiting> {
        // A thread that ends has no slot any more.
        let slot = SLOT.try_with(|slot| slot.borrow().clone()).ok().flatten()?;
        HAS_WAITED.set(true);
        let task = slot.wait();
        Some(Waiting { slot, task })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.slot.go_on(self.task);
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({})", self.task)
    }
}

/// Notes that the task of this thread has ended.
#[inline]
pub fn end_task() {
    if HAS_WAITED.take() {
        let slot = SLOT.with(|slot| slot.borrow().clone());
        slot.iter().for_each(|slot| slot.end());
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct Log(Mutex<String>);

    impl Slot for Log {
        fn wait(&self) -> u64 {
            self.0.lock().push_str("wait ");
            7
        }

        fn go_on(&self, task: u64) {
            self.0.lock().push_str(&format!("go-on-{task} "));
        }

        fn end(&self) {
            self.0.lock().push_str("end ");
        }
    }

    #[test]
    fn each_future_waits_once() {
        let (pending, ready) = (Poll::<()>::Pending, Poll::Ready(()));
        let (mut first, mut second) = (None, None);
        Waiting::note(&mut first, &pending);
        let log = Arc::new(Log::default());
        occupy(Arc::clone(&log) as Arc<dyn Slot>);
        end_task();
        for outcome in [&ready, &pending, &pending, &ready] {
            Waiting::note(&mut first, outcome);
        }
        Waiting::note(&mut second, &pending);
        end_task();
        drop(second);
        assert_eq!(*log.0.lock(), "wait go-on-7 wait end go-on-7 ");
    }
}
