//! What an operation on a shared object gives.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fiber_core::{Error, Result, block_on};
use futures_util::future::{Either, select};

use crate::mesh::Alarm;
use crate::runtime::Runtime;

/// The outcome of an operation on a shared object.
///
/// The request is sent at once. Dropping this takes it back if it has not been fulfilled.
#[must_use = "the outcome tells whether it worked: use `.await` or `.wait()`; dropping it gives up waiting"]
pub struct Waiting<T> {
    what: String,
    future: Pin<Box<dyn Future<Output = Result<T>> + Send>>,
}

impl<T> Waiting<T> {
    /// `what` is what errors say did not happen in time.
    pub(crate) fn new(
        what: String,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Waiting<T> {
        Waiting { what, future: Box::pin(future) }
    }

    /// Blocks this thread until the outcome is there.
    ///
    /// # Errors
    /// The operation's own, and [`Error::WouldDeadlock`].
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }
}

impl<T: Send + 'static> Waiting<T> {
    /// Waits for at most `limit` from now, then gives up with [`Error::TimedOut`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    /// let lock = fiber::sync::Lock::new()?;
    /// let held = lock.lock().wait()?;
    /// assert!(lock.lock().timeout(Duration::from_millis(1)).wait().is_err());
    /// # drop(held);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn timeout(self, limit: Duration) -> Waiting<T> {
        let Waiting { what, future } = self;
        let timed_out = Error::TimedOut { what: what.clone(), limit };
        let alarm = Runtime::get().map(|runtime| Alarm::after(runtime.mesh(), limit));
        Waiting::new(what, async move {
            match select(future, alarm?).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => Err(timed_out),
            }
        })
    }
}

impl<T> Future for Waiting<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.future.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Waiting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("what", &self.what).finish_non_exhaustive()
    }
}
