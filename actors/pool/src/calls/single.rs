//! Calls that give one answer: `apply` and `map`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, Result, block_on};
use serde::de::DeserializeOwned;

use super::ordered::Ordered;
use super::{Accepted, Call, cancel_method, handle_traits};
use crate::batch::ResultBatch;

/// A future of one task's result, from [`Pool::apply`](crate::Pool::apply).
///
/// The task runs whether or not the handle is polled. If its worker dies, another runs it again.
/// Dropping the handle cancels the task if it has not started, and discards its result otherwise.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(1)?;
/// let sum = pool.apply(|a: i32, b: i32| a + b, (1, 2));
/// assert_eq!(sum.wait()?, 3);
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "dropping the handle cancels the task if it has not started: use `.await` or \
              `.wait()`, or `.detach()` to run the task without a handle"]
pub struct ApplyCall<T> {
    call: Call<T>,
}

handle_traits!(ApplyCall);

impl<T: DeserializeOwned> ApplyCall<T> {
    pub(crate) fn new(accepted: Result<Accepted>) -> ApplyCall<T> {
        ApplyCall { call: Call::new(accepted) }
    }

    cancel_method! {
        /// let mut call = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ());
        /// call.cancel();
        /// assert!(matches!(call.wait(), Err(fiber::Error::Cancelled { .. })));
    }

    /// Runs the task to its end without a handle. The result is discarded; a failure is logged with
    /// `tracing::warn`.
    ///
    /// [`Pool::stop`](crate::Pool::stop) waits for the task. Dropping the last handle of the pool
    /// ends it, and so does the end of the program.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// pool.apply(|line: String| println!("{line}"), "logged by a worker".into()).detach();
    /// pool.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn detach(self) {
        self.call.detach();
    }

    /// Blocks this thread until the result has arrived, and decodes it here.
    ///
    /// # Errors
    /// [`Error::Task`] if the function failed or panicked; [`Error::WorkerDied`] if too many
    /// workers died while they ran it, or it ran past its timeout; [`Error::PoolEnded`], which is
    /// also the answer of a closed pool; [`Error::Encode`] and [`Error::TooLarge`] for the
    /// arguments; [`Error::Decode`] if the result can't be deserialized; [`Error::Cancelled`];
    /// [`Error::WouldDeadlock`] on fiber's own threads.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// let error = pool.apply(|divisor: u32| 6 / divisor, 0).wait().unwrap_err();
    /// assert!(error.to_string().contains("divide by zero"));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }
}

impl<T: DeserializeOwned> Future for ApplyCall<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let result = match ready!(self.call.poll_batch(context)) {
            Some(Ok(ResultBatch::Outcomes(run, _))) => self
                .call
                .decoder(run)
                .next()
                .unwrap_or_else(|| unreachable!("a run has at least one task")),
            Some(Ok(ResultBatch::Failed(_, error)) | Err(error)) => Err(error),
            None => Err(polled_after_end()),
        };
        if let Ok(active) = &mut self.call.active {
            active.finished = true;
        }
        Poll::Ready(result)
    }
}

fn polled_after_end() -> Error {
    Error::invalid("Future::poll", "the call was polled after it had returned its result")
}

/// A future of the results of many tasks, in the order of the arguments, from
/// [`Pool::map`](crate::Pool::map).
///
/// Dropping the handle cancels the tasks that have not started, and discards the results of the
/// others.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(2)?;
/// let squares = pool.map(|x: u64| x * x, 0..4).progress("squares").wait()?;
/// assert_eq!(squares, [0, 1, 4, 9]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "dropping the handle cancels all tasks that have not started: use `.await` or \
              `.wait()`, or `.detach()` to run the tasks without a handle"]
pub struct MapCall<T> {
    call: Call<T>,
    results: Ordered<T>,
    #[cfg_attr(not(feature = "progress"), expect(dead_code, reason = "progress bars show it"))]
    length: Option<u64>,
}

handle_traits!(MapCall);

impl<T: DeserializeOwned> MapCall<T> {
    pub(crate) fn new(accepted: Result<Accepted>, length: Option<u64>) -> MapCall<T> {
        MapCall { call: Call::new(accepted), results: Ordered::default(), length }
    }

    cancel_method! {
        /// let mut call = pool.map(|_: u32| std::thread::sleep(Duration::from_secs(60)), 0..9);
        /// call.cancel();
        /// assert!(matches!(call.wait(), Err(fiber::Error::Cancelled { .. })));
    }

    /// Runs the call to its end without a handle. Results are discarded; failures are logged with
    /// `tracing::warn`, and do not cancel other tasks.
    ///
    /// [`Pool::stop`](crate::Pool::stop) waits for the call. Dropping the last handle of the pool
    /// ends it, and so does the end of the program.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// pool.map(|line: String| println!("{line}"), ["one".into(), "two".into()]).detach();
    /// pool.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn detach(self) {
        self.call.detach();
    }

    /// Shows a progress bar on standard error until the results have arrived, if standard error is
    /// a terminal. The [example](MapCall#examples) shows it.
    ///
    /// Print lines beside it with [`suspend_progress`](crate::suspend_progress). Requires fiber's
    /// feature `progress`.
    #[cfg(feature = "progress")]
    pub fn progress(mut self, label: impl Into<String>) -> MapCall<T> {
        self.call.progress(label.into(), self.length);
        self
    }

    /// Blocks this thread until all results have arrived. It decodes them here as they arrive.
    ///
    /// # Errors
    /// The first failure that arrives, as in [`ApplyCall::wait`]. It cancels the tasks that have
    /// not started. [`Error::Invalid`] if the iterator of the items panics.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// assert_eq!(pool.map(|x: u32| 6 / x, [3, 2]).wait()?, [2, 3]);
    /// let error = pool.map(|x: u32| 6 / x, [3, 0]).wait().unwrap_err();
    /// assert!(matches!(error, fiber::Error::Task { index: 1, .. }));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Result<Vec<T>> {
        block_on(self)
    }
}

impl<T: DeserializeOwned> Future for MapCall<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<T>>> {
        loop {
            let batch = ready!(self.call.poll_batch(context));
            if let Some(Ok(batch)) = &batch {
                self.call.consumed(batch);
            }
            let result = match batch {
                Some(Ok(ResultBatch::Outcomes(run, _stored))) => {
                    let outcomes = self.call.decoder(run);
                    self.results.add(outcomes)
                }
                Some(Ok(ResultBatch::Failed(_, error)) | Err(error)) => Err(error),
                None => return Poll::Ready(Ok(self.results.take())),
            };
            if let Err(error) = result {
                if let Ok(active) = &mut self.call.active {
                    active.abandon();
                }
                return Poll::Ready(Err(error));
            }
        }
    }
}
