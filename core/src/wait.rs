//! Waiting for a future without a runtime.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::spin::Spin;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Forbids waiting on this thread, because it does the work that other threads wait for.
pub fn forbid_waiting() {
    FORBIDDEN.set(true);
}

/// Returns whether this thread may wait.
pub fn waiting_allowed() -> bool {
    !FORBIDDEN.get()
}

/// Returns the time after `limit`. A limit of centuries, such as `Duration::MAX`, is a century.
pub fn deadline_after(limit: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + limit.min(CENTURY)
}

/// Blocks this thread until `future` is ready.
///
/// # Errors
/// [`Error::WouldDeadlock`] on fiber's own threads; else the future's error.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if !waiting_allowed() {
        return Err(Error::WouldDeadlock);
    }
    let sleeper = Arc::new(Sleeper { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        sleeper.sleep();
    }
}

/// A waiting thread, and whether it was woken.
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Sleeper {
    /// Waits until the thread is woken. Returns at once if it was woken since the last call.
    fn sleep(&self) {
        let mut spin = Spin::default();
        while !self.woken.swap(false, Ordering::Acquire) {
            if spin.should_continue() {
                spin.yield_core();
            } else {
                // The thread's token keeps a wake-up that comes between the check and this call.
                thread::park();
            }
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
