//! Waiting for a future without a runtime.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::error::{Error, Result};
use crate::spin::Spin;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that must not wait, because it does the work that others wait for.
pub fn forbid_waiting() {
    FORBIDDEN.set(true);
}

/// Whether this thread may wait.
pub fn waiting_allowed() -> bool {
    !FORBIDDEN.get()
}

/// Blocks this thread until `future` is ready.
///
/// # Errors
/// [`Error::WouldDeadlock`] on fiber's own threads; else what the future returns.
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

/// A thread that waits, and whether it is to look again.
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Sleeper {
    /// Returns when it is woken, or has been since it last returned.
    fn sleep(&self) {
        let mut spin = Spin::default();
        while !self.woken.swap(false, Ordering::Acquire) {
            if spin.should_continue() {
                spin.yield_core();
            } else {
                // A wake-up between the look and this is kept by the thread's token, so none is
                // lost.
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
