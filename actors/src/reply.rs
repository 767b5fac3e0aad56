//! The answer of fiber's own machinery, for async code and for code that is not.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fiber_core::{Result, block_on};

/// An answer that may take a while. What was asked for happens whether or not it is awaited.
#[must_use = "the answer tells whether it worked: use `.await` or `.wait()`"]
pub struct Reply<T>(Pin<Box<dyn Future<Output = Result<T>> + Send>>);

impl<T> Reply<T> {
    pub(crate) fn new(answer: impl Future<Output = Result<T>> + Send + 'static) -> Reply<T> {
        Reply(Box::pin(answer))
    }

    /// An answer to something that is asked for now, as far as that can be without waiting.
    pub(crate) fn begun(answer: impl Future<Output = Result<T>> + Send + 'static) -> Reply<T>
    where
        T: Send + 'static,
    {
        let mut answer = Box::pin(answer);
        // Whoever awaits it polls it again, with a waker of their own.
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Reply::new(ready(answer)),
            Poll::Pending => Reply(answer),
        }
    }

    /// Blocks this thread until the answer is there.
    ///
    /// # Errors
    /// The answer's own, and [`Error::WouldDeadlock`](fiber_core::Error::WouldDeadlock).
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
