//! Waiting for a future without a runtime.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::error::{Error, Result};

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
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            // A wake-up between the poll and this is kept by the thread's token, so none is lost.
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
