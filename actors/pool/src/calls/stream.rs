//! Calls that give a stream of results: `imap` and `imap_unordered`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec;

use fiber_core::{Result, SortedMap};
use fiber_values::codec::EncodedValue;
use fiber_values::{Output, OutputCell};
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::{Call, Decoder, Submitted, cancel_method, encoded, handle_traits};
use crate::batch::ResultBatch;
use fiber_runtime::blocking::{Blocking, blocking_iterator};

/// A stream of the results of many tasks, in the order of the arguments, from
/// [`Pool::imap`](crate::Pool::imap).
///
/// It is a [`Stream`] in async code, and an iterator in a `for` loop or after
/// [`wait`](ImapCall::wait). A task that fails is an `Err` in its place; the stream continues.
///
/// Dropping the handle cancels the tasks that have not started, and discards the results of the
/// others.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(2)?;
/// for (x, square) in (0..).zip(pool.imap(|x: u64| x * x, 0..5)) {
///     assert_eq!(square?, x * x);
/// }
/// # Ok::<(), fiber::Error>(())
/// ```
///
/// In async code, with an extension trait for streams:
/// ```
/// use fiber::prelude::*;
/// use futures_util::StreamExt;
///
/// #[fiber::main]
/// async fn main() -> fiber::Result<()> {
///     let pool = Pool::new(2)?;
///     let mut squares = pool.imap(|x: u64| x * x, 0..5);
///     while let Some(square) = squares.next().await {
///         println!("{}", square?);
///     }
///     Ok(())
/// }
/// ```
#[must_use = "dropping the handle cancels all tasks that have not started: take the results with \
              `for`, `.wait()` or as a `Stream`, or use `.detach()` to run the tasks without a \
              handle"]
pub struct ImapCall<T> {
    call: Call<T>,
    next: u64,
    /// Batches that arrived before their turn, by the index of the first task.
    early: SortedMap<u64, ResultBatch>,
    current: Option<Decoder<T>>,
    ended: bool,
}

handle_traits!(ImapCall);

/// A stream of the results of many tasks, in the order of arrival, from
/// [`Pool::imap_unordered`](crate::Pool::imap_unordered).
///
/// It is a [`Stream`] in async code, and an iterator in a `for` loop or after
/// [`wait`](ImapUnorderedCall::wait). A task that fails is an `Err`; the stream continues.
///
/// Dropping the handle cancels the tasks that have not started, and discards the results of the
/// others.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(2)?;
/// let mut sum = 0;
/// for square in pool.imap_unordered(|x: u64| x * x, 0..5) {
///     sum += square?;
/// }
/// assert_eq!(sum, 30);
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "dropping the handle cancels all tasks that have not started: take the results with \
              `for`, `.wait()` or as a `Stream`, or use `.detach()` to run the tasks without a \
              handle"]
pub struct ImapUnorderedCall<T> {
    call: Call<T>,
    current: Option<Decoder<T>>,
    ended: bool,
}

handle_traits!(ImapUnorderedCall);

/// A stream of the [`Output`]s of many tasks, from [`ImapCall::outputs`] and
/// [`ImapUnorderedCall::outputs`].
///
/// It is a [`Stream`] in async code, and an iterator in a `for` loop or after
/// [`wait`](OutputStream::wait). An error of the whole call is the last output.
///
/// Dropping it cancels the tasks that have not started. The outputs that were taken stay.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(2)?;
/// for square in pool.imap(|x: u64| x * x, 0..5).outputs() {
///     println!("{}", square.get().wait()?);
/// }
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "dropping the stream cancels all tasks that have not started: take the outputs with \
              `for`, `.wait()` or as a `Stream`"]
pub struct OutputStream<C> {
    call: C,
    ready: vec::IntoIter<Arc<OutputCell>>,
}

impl<C> OutputStream<C> {
    /// Returns the outputs as an iterator, which blocks this thread until the next one is there. On
    /// a thread that has to run for it, the next one, and the last, holds
    /// [`Error::WouldDeadlock`](fiber_core::Error::WouldDeadlock).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let mut squares = pool.imap(|x: u64| x * x, 0..).outputs().wait();
    /// assert_eq!(squares.next().unwrap().get().wait()?, 0);
    /// assert_eq!(squares.next().unwrap().get().wait()?, 1);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Blocking<OutputStream<C>> {
        Blocking::new(self)
    }
}

impl<C> fmt::Debug for OutputStream<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutputStream")
    }
}

/// Returns the places of outcomes of a call.
fn cells<T>(
    call: &Call<T>,
    outcomes: Vec<(u64, Result<EncodedValue>)>,
) -> vec::IntoIter<Arc<OutputCell>> {
    let cell = |(index, value)| {
        let Ok(active) = &call.active else { return OutputCell::filled(value) };
        let kept = active.exchange.take_kept(index);
        let cell = kept.unwrap_or_else(|| OutputCell::filled(value));
        cell.set_maker(active.exchange.maker(index));
        cell
    };
    outcomes.into_iter().map(cell).collect::<Vec<_>>().into_iter()
}

macro_rules! stream_handle {
    ($name:ident, $method:literal) => {
        impl<T: DeserializeOwned> $name<T> {
            cancel_method! {
                /// let sleep = |_: u32| std::thread::sleep(Duration::from_secs(60));
                #[doc = concat!("let mut call = pool.", $method, "(sleep, 0..9);")]
                /// call.cancel();
                /// let first = call.wait().next();
                /// assert!(matches!(first, Some(Err(fiber::Error::Cancelled { .. }))));
            }

            /// Shows a progress bar on standard error while the results are taken, if standard
            /// error is a terminal. The example of
            /// [`suspend_progress`](crate::suspend_progress) shows it.
            ///
            /// Print lines beside it with [`suspend_progress`](crate::suspend_progress). Requires
            /// fiber's feature `progress`.
            #[cfg(feature = "progress")]
            pub fn progress(mut self, label: impl Into<String>) -> $name<T> {
                self.call.progress(label.into());
                self
            }

            /// Returns the results as an iterator, which blocks this thread until the next result
            /// has arrived. A `for` loop over the handle does the same.
            ///
            /// Its items fail as [`ApplyCall::wait`](crate::ApplyCall::wait) does. After a task's
            /// failure the next results follow; an error of the whole call is the last item.
            /// Dropping the iterator drops the handle: a loop over `&mut call` leaves it for the
            /// results that were not taken.
            ///
            /// # Examples
            /// ```
            /// # fiber::init();
            /// let pool = fiber::Pool::new(2)?;
            #[doc = concat!("let call = pool.", $method, "(|x: u64| x * x, 0..);")]
            /// for square in call.wait().take(3) {
            ///     println!("{}", square?);
            /// }
            /// # Ok::<(), fiber::Error>(())
            /// ```
            pub fn wait(self) -> Blocking<$name<T>> {
                Blocking::new(self)
            }

            /// Keeps the values where they are, as [`Output`]s that other tasks take. Gives a
            /// stream of them, or an iterator, in the order and at the time of the results.
            ///
            /// Each output is ready: it has a value or a failure. Until it is taken from the
            /// stream, it counts towards the call's [buffer](crate::Pool::buffer), so an endless
            /// iterator runs in bounded memory.
            ///
            /// # Examples
            /// ```
            /// # fiber::init();
            /// let pool = fiber::Pool::new(2)?;
            #[doc = concat!("let squares = pool.", $method, "(|x: u64| x * x, 0..).outputs();")]
            /// let halves = pool.imap(|x: u64| x / 2, squares.wait());
            /// for half in halves.wait().take(3) {
            ///     println!("{}", half?);
            /// }
            /// # Ok::<(), fiber::Error>(())
            /// ```
            pub fn outputs(mut self) -> OutputStream<$name<T>> {
                if let Ok(active) = &self.call.active {
                    active.keep_values();
                }
                let current = self.current.take();
                let ready = current.map(Decoder::encoded).unwrap_or_default();
                let ready = cells(&self.call, ready);
                OutputStream { call: self, ready }
            }

            fn take_current(&mut self) -> Option<Result<T>> {
                let current = self.current.as_mut()?;
                let result = current.next();
                if current.is_empty() {
                    self.current = None;
                }
                result
            }
        }

        impl<T: DeserializeOwned> Stream for $name<T> {
            type Item = Result<T>;

            fn poll_next(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Option<Result<T>>> {
                loop {
                    if let Some(result) = self.take_current() {
                        return Poll::Ready(Some(result));
                    }
                    match ready!(self.poll_next_batch(context)) {
                        Some(Ok(ResultBatch::Outcomes(run, _))) => {
                            self.current = Some(self.call.decoder(run));
                        }
                        Some(Ok(ResultBatch::Failed(_, error)) | Err(error)) => {
                            return Poll::Ready(Some(Err(error)));
                        }
                        None => return Poll::Ready(None),
                    }
                }
            }
        }

        impl<T: DeserializeOwned> Stream for OutputStream<$name<T>> {
            type Item = Output<T>;

            fn poll_next(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Option<Output<T>>> {
                loop {
                    if let Some(cell) = self.ready.next() {
                        return Poll::Ready(Some(Output::of(cell)));
                    }
                    match ready!(self.call.poll_next_batch(context)) {
                        Some(Ok(batch)) => {
                            let function = self.call.call.function();
                            self.ready = cells(&self.call.call, encoded(function, batch));
                        }
                        Some(Err(error)) => {
                            let failed = OutputCell::filled(Err(error));
                            return Poll::Ready(Some(Output::of(failed)));
                        }
                        None => return Poll::Ready(None),
                    }
                }
            }
        }

        impl<T: DeserializeOwned> IntoIterator for OutputStream<$name<T>> {
            type Item = Output<T>;
            type IntoIter = Blocking<OutputStream<$name<T>>>;

            /// Works as [`wait`](OutputStream::wait).
            fn into_iter(self) -> Blocking<OutputStream<$name<T>>> {
                self.wait()
            }
        }

        blocking_iterator!($name<T>);
    };
}

stream_handle!(ImapCall, "imap");
stream_handle!(ImapUnorderedCall, "imap_unordered");

impl<T: DeserializeOwned> ImapCall<T> {
    pub(crate) fn new(submitted: Submitted) -> ImapCall<T> {
        let call = Call::new(submitted);
        ImapCall { call, next: 0, early: SortedMap::new(), current: None, ended: false }
    }

    /// Takes the next batch of results in the order of the tasks, or returns `None` after the last.
    fn poll_next_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ResultBatch>>> {
        loop {
            if let Some(batch) = self.early.remove(&self.next) {
                self.call.consumed(&batch);
                self.next = batch.end();
                return Poll::Ready(Some(Ok(batch)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.call.poll_batch(context)) {
                Some(Ok(batch)) => drop(self.early.insert(batch.start(), batch)),
                Some(Err(error)) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => self.ended = true,
            }
        }
    }

    /// Runs the call to its end without a handle. Results are discarded; failures are logged with
    /// `tracing::warn`.
    ///
    /// [`Pool::stop`](crate::Pool::stop) waits for the call. Dropping the last handle of the pool
    /// ends it, and so does the end of the program.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let mut squares = pool.imap(|x: u64| x * x, 0..4);
    /// for square in (&mut squares).into_iter().take(1) {
    ///     println!("{}", square?);
    /// }
    /// squares.detach();
    /// pool.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn detach(self) {
        self.early.values().for_each(|batch| self.call.consumed(batch));
        self.call.detach();
    }
}

impl<T: DeserializeOwned> ImapUnorderedCall<T> {
    pub(crate) fn new(submitted: Submitted) -> ImapUnorderedCall<T> {
        ImapUnorderedCall { call: Call::new(submitted), current: None, ended: false }
    }

    /// Takes the next batch of results, or returns `None` after the last.
    fn poll_next_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ResultBatch>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let batch = ready!(self.call.poll_batch(context));
        match &batch {
            Some(Ok(batch)) => self.call.consumed(batch),
            Some(Err(_)) | None => self.ended = true,
        }
        Poll::Ready(batch)
    }

    /// Runs the call to its end without a handle. Results are discarded; failures are logged with
    /// `tracing::warn`.
    ///
    /// [`Pool::stop`](crate::Pool::stop) waits for the call. Dropping the last handle of the pool
    /// ends it, and so does the end of the program.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let mut squares = pool.imap_unordered(|x: u64| x * x, 0..4);
    /// for square in (&mut squares).into_iter().take(1) {
    ///     println!("{}", square?);
    /// }
    /// squares.detach();
    /// pool.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn detach(self) {
        self.call.detach();
    }
}
