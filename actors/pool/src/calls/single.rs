//! Calls that give one answer: `apply` and `map`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, Result, block_on};
use fiber_values::{
    AsResult, AsValue, Inputs, Output, Portable, TaskOutput, TryOutput, TypedEntry,
    assert_captures_nothing,
};
use serde::de::DeserializeOwned;

use super::ordered::Ordered;
use super::{Accepted, Call, Submitted, cancel_method, handle_traits};
use crate::batch::ResultBatch;
use crate::outputs::{count, outputs};
use crate::pool::WeakPool;
use crate::reduce::{Pair, ReduceCall, merged};

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
        ApplyCall { call: Call::new((accepted, Some(1))) }
    }

    cancel_method! {
        /// let mut call = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ());
        /// call.cancel();
        /// assert!(matches!(call.wait(), Err(fiber::Error::Cancelled { .. })));
    }

    /// Keeps the task's value where it is, as an [`Output`] that other tasks take.
    ///
    /// Returns at once. A failure is that of [`Output::get`] and of the tasks that take it.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let sum = pool.apply(|a: u64, b: u64| a + b, (1, 2)).output();
    /// assert_eq!(pool.apply(|a: u64, b: u64| a * b, (sum, 10)).wait()?, 30);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "dropping the output cancels the task if it has not started"]
    pub fn output(self) -> Output<T> {
        let mut outputs = outputs(self.call.active, 1, None);
        outputs.pop().expect("there is one for each task")
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
    /// pool.apply(|line: String| println!("{line}"), "logged by a worker".to_string()).detach();
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
    /// The handle that has made the call.
    pool: WeakPool,
}

handle_traits!(MapCall);

impl<T: DeserializeOwned> MapCall<T> {
    pub(crate) fn new(submitted: Submitted, pool: WeakPool) -> MapCall<T> {
        MapCall { call: Call::new(submitted), results: Ordered::default(), pool }
    }

    cancel_method! {
        /// let mut call = pool.map(|_: u32| std::thread::sleep(Duration::from_secs(60)), 0..9);
        /// call.cancel();
        /// assert!(matches!(call.wait(), Err(fiber::Error::Cancelled { .. })));
    }

    /// Keeps the values where they are, as [`Output`]s that other tasks take, in the order of the
    /// items.
    ///
    /// Returns at once if the iterator's `size_hint` is exact, and otherwise when the iterator has
    /// ended. A failure is that of its output alone. A call that was rejected has outputs with its
    /// error: one if the number of items is not known.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let squares = pool.map(|x: u64| x * x, 0..5).outputs();
    /// let sum = pool.apply(|squares: Vec<u64>| squares.iter().sum::<u64>(), squares);
    /// assert_eq!(sum.wait()?, 30);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "dropping all outputs cancels the tasks that have not started"]
    pub fn outputs(self) -> Vec<Output<T>> {
        match count(&self.call.active, self.call.length) {
            Ok(count) => outputs(self.call.active, count, None),
            Err(error) => outputs(Err(error), 1, None),
        }
    }

    /// Merges the values in workers, two neighbours at a time, to one, which this program gets.
    ///
    /// Values are merged in the order of the items, as soon as two neighbours are there, and before
    /// further tasks of this call run: few are stored at a time. `merge` has to be associative:
    /// `merge(merge(a, b), c)` is `merge(a, merge(b, c))`. It need not be commutative. Which values
    /// are merged depends on the number of items alone, not on time. n values take n − 1 merges.
    ///
    /// The merges have the options of the handle that has made this call. With
    /// [`durable`](crate::Pool::durable) they are recorded, too.
    ///
    /// Returns at once if the iterator's `size_hint` is exact, and otherwise when the iterator has
    /// ended. Without items the result is `None`, as that of [`Iterator::reduce`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let texts = pool.map(|x: u32| x.to_string(), 0..10);
    /// let text = texts.reduce(|a, b| a + &b).wait()?;
    /// assert_eq!(text.unwrap_or_default(), "0123456789");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn reduce<F, R, N>(self, merge: F) -> ReduceCall<T>
    where
        F: Fn(T, T) -> R + Copy + Send + 'static,
        R: TaskOutput<N, Value = T>,
        T: Portable + Send + 'static,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        self.merge(TypedEntry::of_call::<Pair<T>, F, _, AsValue<N>>(merge))
    }

    /// Works as [`reduce`](MapCall::reduce), for a function that returns a `Result` whose error
    /// implements `Display`. An `Err` is the failure of all.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let add = |a: u8, b: u8| a.checked_add(b).ok_or("the sum does not fit");
    /// let identity = |x: u8| x;
    /// assert_eq!(pool.map(identity, [100, 150]).try_reduce(add).wait()?, Some(250));
    /// let error = pool.map(identity, [100, 150, 6]).try_reduce(add).wait().unwrap_err();
    /// assert!(error.to_string().contains("the sum does not fit"));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn try_reduce<F, R, N>(self, merge: F) -> ReduceCall<T>
    where
        F: Fn(T, T) -> R + Copy + Send + 'static,
        R: TryOutput<N, Value = T>,
        T: Portable + Send + 'static,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        self.merge(TypedEntry::of_call::<Pair<T>, F, _, AsResult<N>>(merge))
    }

    fn merge<M>(self, merge: TypedEntry<(T, T), T>) -> ReduceCall<T>
    where
        Pair<T>: Inputs<(T, T), M>,
        T: 'static,
    {
        let count = count(&self.call.active, self.call.length);
        let merged = count.and_then(|count| merged(self.call.active?, count, &self.pool, merge));
        ReduceCall::new(merged)
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
    /// pool.map(|line: String| println!("{line}"), ["one", "two"].map(String::from)).detach();
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
        self.call.progress(label.into());
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
