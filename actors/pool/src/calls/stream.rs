//! Calls that give a stream of results: `imap` and `imap_unordered`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fiber_core::Result;
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::{Accepted, Call, Decoder, cancel_method, handle_traits};
use crate::batch::ResultBatch;
use fiber_runtime::blocking::Blocking;

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
    early: BTreeMap<u64, ResultBatch>,
    current: Option<Decoder<T>>,
    #[cfg_attr(not(feature = "progress"), expect(dead_code, reason = "progress bars show it"))]
    length: Option<u64>,
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
    #[cfg_attr(not(feature = "progress"), expect(dead_code, reason = "progress bars show it"))]
    length: Option<u64>,
    ended: bool,
}

handle_traits!(ImapUnorderedCall);

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
                self.call.progress(label.into(), self.length);
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

            fn take_current(&mut self) -> Option<Result<T>> {
                let current = self.current.as_mut()?;
                let result = current.next();
                if current.is_empty() {
                    self.current = None;
                }
                result
            }
        }

        impl<T: DeserializeOwned> IntoIterator for $name<T> {
            type Item = Result<T>;
            type IntoIter = Blocking<$name<T>>;

            /// Works as [`wait`](Self::wait).
            fn into_iter(self) -> Blocking<$name<T>> {
                self.wait()
            }
        }

        impl<'a, T: DeserializeOwned> IntoIterator for &'a mut $name<T> {
            type Item = Result<T>;
            type IntoIter = Blocking<&'a mut $name<T>>;

            /// Works as `wait`, and leaves the handle for the results that were not taken.
            fn into_iter(self) -> Blocking<&'a mut $name<T>> {
                Blocking::new(self)
            }
        }
    };
}

stream_handle!(ImapCall, "imap");
stream_handle!(ImapUnorderedCall, "imap_unordered");

impl<T: DeserializeOwned> ImapCall<T> {
    pub(crate) fn new(accepted: Result<Accepted>, length: Option<u64>) -> ImapCall<T> {
        let call = Call::new(accepted);
        ImapCall { call, next: 0, early: BTreeMap::new(), current: None, length, ended: false }
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
    pub(crate) fn new(accepted: Result<Accepted>, length: Option<u64>) -> ImapUnorderedCall<T> {
        ImapUnorderedCall { call: Call::new(accepted), current: None, length, ended: false }
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

impl<T: DeserializeOwned> Stream for ImapCall<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        loop {
            if let Some(result) = self.take_current() {
                return Poll::Ready(Some(result));
            }
            let next = self.next;
            match self.early.remove(&next) {
                Some(batch) => {
                    self.call.consumed(&batch);
                    match batch {
                        ResultBatch::Outcomes(run, _) => {
                            self.next = run.end;
                            self.current = Some(self.call.decoder(run));
                        }
                        ResultBatch::Failed(index, error) => {
                            self.next = index + 1;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                }
                None if self.ended => return Poll::Ready(None),
                None => match ready!(self.call.poll_batch(context)) {
                    Some(Ok(batch)) => drop(self.early.insert(batch.start(), batch)),
                    Some(Err(error)) => {
                        self.ended = true;
                        return Poll::Ready(Some(Err(error)));
                    }
                    None => self.ended = true,
                },
            }
        }
    }
}

impl<T: DeserializeOwned> Stream for ImapUnorderedCall<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        if let Some(result) = self.take_current() {
            return Poll::Ready(Some(result));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.call.poll_batch(context)) {
            Some(Ok(batch)) => {
                self.call.consumed(&batch);
                match batch {
                    ResultBatch::Outcomes(run, _) => {
                        self.current = Some(self.call.decoder(run));
                        Poll::Ready(self.take_current())
                    }
                    ResultBatch::Failed(_, error) => Poll::Ready(Some(Err(error))),
                }
            }
            Some(Err(error)) => {
                self.ended = true;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                self.ended = true;
                Poll::Ready(None)
            }
        }
    }
}
