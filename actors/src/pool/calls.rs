//! What a caller holds of its calls: futures and streams that any runtime can await, and that
//! threads can wait for.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fiber_core::{Error, Failure, FailureKind, Result, block_on, codec};
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::exchange::{Arrived, Exchange};
use super::progress::Progress;
use super::run::{Items, PREFIX, Run};
use super::shared::{Ending, Shared};
use crate::blocking::Blocking;

/// A call under way.
struct Active {
    exchange: Arc<Exchange>,
    pool: Arc<Shared>,
    progress: Progress,
    finished: bool,
}

impl Active {
    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Arrived>>> {
        let arrived = ready!(self.exchange.poll_arrived(context));
        match &arrived {
            Some(Ok(arrived)) => self.progress.advance(arrived.len(), self.exchange.total()),
            Some(Err(_)) | None => {
                self.finished = true;
                self.progress.finish();
            }
        }
        Poll::Ready(arrived)
    }

    /// Notes that outcomes are not stored any more.
    fn took(&self, arrived: &Arrived) {
        if self.exchange.taken(arrived) {
            self.pool.resume(self.exchange.id);
        }
    }

    /// Takes the outcomes on the node's thread until the call has ended. Results are not decoded
    /// there: that is code of users.
    fn detach(mut self) {
        let runtime = self.pool.runtime;
        runtime.spawn(move || async move {
            while let Some(arrived) = poll_fn(|context| self.poll_arrived(context)).await {
                match arrived {
                    Ok(arrived) => {
                        self.took(&arrived);
                        failures(self.exchange.function, arrived).iter().for_each(warn);
                    }
                    Err(error) => return warn(&error),
                }
            }
        });
    }

    fn cancel(&mut self) {
        self.pool.cancel(self.exchange.id, Ending::Kill);
        self.exchange.end(Error::Cancelled { function: self.exchange.function });
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if !self.finished {
            self.exchange.stop();
            self.pool.cancel(self.exchange.id, Ending::LetFinish);
        }
    }
}

/// The failures among outcomes.
fn failures(function: &'static str, arrived: Arrived) -> Vec<Error> {
    let run = match arrived {
        Arrived::Outcomes(run) => run,
        Arrived::Failed(_, error) => return vec![error],
    };
    let bytes = run.arguments();
    let failed = Items::new(&bytes).zip(run.start..run.end).filter(|((_, failed), _)| *failed);
    failed.map(|((item, _), index)| failure(function, index, item)).collect()
}

fn failure(function: &'static str, index: u64, item: &[u8]) -> Error {
    let failure =
        codec::decode(item).unwrap_or_else(|error| Failure::new(FailureKind::Result, error));
    Error::Task { function, index, failure }
}

fn warn(error: &Error) {
    tracing::warn!("of a detached call: {error}");
}

/// A call, or why there is none.
struct Call<T> {
    active: Result<Active>,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Call<T> {
    fn new(started: Result<(Arc<Exchange>, Arc<Shared>)>) -> Call<T> {
        let active = started.map(|(exchange, pool)| Active {
            exchange,
            pool,
            progress: Progress::default(),
            finished: false,
        });
        Call { active, value: PhantomData }
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Arrived>>> {
        match &mut self.active {
            Ok(active) => active.poll_arrived(context),
            Err(error) => Poll::Ready(Some(Err(error.clone()))),
        }
    }

    fn decode(&self, run: Run) -> Decode<T> {
        let function = self.active.as_ref().map_or("", |active| active.exchange.function);
        Decode {
            function,
            index: run.start,
            end: run.end,
            bytes: run.arguments(),
            position: 0,
            value: PhantomData,
        }
    }

    fn took(&self, arrived: &Arrived) {
        if let Ok(active) = &self.active {
            active.took(arrived);
        }
    }

    fn cancel(&mut self) {
        if let Ok(active) = &mut self.active {
            active.cancel();
        }
    }

    fn detach(self) {
        match self.active {
            // It has ended, or is to be polled no more.
            Ok(active) if active.finished => {}
            Ok(active) => active.detach(),
            Err(error) => warn(&error),
        }
    }

    #[cfg(feature = "progress")]
    fn progress(&mut self, label: String, length: Option<u64>) {
        if let Ok(active) = &mut self.active {
            active.progress = Progress::new(label, length.or(active.exchange.total()));
        }
    }
}

/// Outcomes, one by one.
struct Decode<T> {
    function: &'static str,
    index: u64,
    end: u64,
    bytes: Bytes,
    position: usize,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Iterator for Decode<T> {
    type Item = Result<T>;

    #[inline]
    fn next(&mut self) -> Option<Result<T>> {
        if self.index == self.end {
            return None;
        }
        let index = self.index;
        self.index += 1;
        let Some((item, failed)) = Items::new(&self.bytes[self.position..]).next() else {
            let failure =
                Failure::new(FailureKind::Result, "the worker sent less than it announced");
            return Some(Err(Error::Task { function: self.function, index, failure }));
        };
        self.position += PREFIX + item.len();
        if !failed {
            return Some(codec::decode(item));
        }
        Some(Err(failure(self.function, index, item)))
    }
}

macro_rules! call_handle {
    () => {
        /// Ends the call: tasks that have not begun are not begun, and workers that run a task of
        /// it are replaced. The handle then gives [`Error::Cancelled`].
        ///
        /// Dropping the handle is milder: tasks that run are run to their end, and their results
        /// discarded. [`detach`](Self::detach) runs all of them.
        pub fn cancel(&mut self) {
            self.call.cancel();
        }
    };
}

macro_rules! debug_handle {
    ($name:ident) => {
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        // No value of `T` is kept in place.
        impl<T> Unpin for $name<T> {}
    };
}

/// One task under way: a future of its result.
#[must_use = "dropping this cancels every task that has not begun: use `.wait()` or `.await`, or `.detach()` to run \
              without it"]
pub struct ApplyCall<T> {
    call: Call<T>,
}

debug_handle!(ApplyCall);

impl<T: DeserializeOwned> ApplyCall<T> {
    pub(super) fn new(started: Result<(Arc<Exchange>, Arc<Shared>)>) -> ApplyCall<T> {
        ApplyCall { call: Call::new(started) }
    }

    call_handle!();

    /// Runs the call to its end without a handle. Results are discarded; a failure is logged
    /// (`tracing::warn`).
    ///
    /// [`Pool::join`](super::Pool::join) waits for it, as for all calls. Dropping the last handle
    /// of the pool ends it, and so does the end of the program.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// pool.apply(|line: String| println!("{line}"), "logged by a worker".into()).detach();
    /// pool.join().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn detach(self) {
        self.call.detach();
    }

    /// Blocks this thread until the result is there.
    ///
    /// # Errors
    /// The task's failure, and [`Error::WouldDeadlock`] on fiber's own threads.
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }
}

impl<T: DeserializeOwned> Future for ApplyCall<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let result = match ready!(self.call.poll_arrived(context)) {
            Some(Ok(Arrived::Outcomes(run))) => self
                .call
                .decode(run)
                .next()
                .unwrap_or_else(|| unreachable!("a run has at least one task")),
            Some(Ok(Arrived::Failed(_, error)) | Err(error)) => Err(error),
            None => Err(taken()),
        };
        if let Ok(active) = &mut self.call.active {
            active.finished = true;
        }
        Poll::Ready(result)
    }
}

fn taken() -> Error {
    Error::invalid("Future::poll", "the call was polled after it had returned its result")
}

/// Many tasks under way: a future of all their results, in the order of the arguments.
#[must_use = "dropping this cancels every task that has not begun: use `.wait()` or `.await`, or `.detach()` to run \
              without it"]
pub struct MapCall<T> {
    call: Call<T>,
    parts: Vec<(u64, Vec<T>)>,
    #[cfg_attr(not(feature = "progress"), expect(dead_code, reason = "progress bars show it"))]
    length: Option<u64>,
}

debug_handle!(MapCall);

impl<T: DeserializeOwned> MapCall<T> {
    pub(super) fn new(
        started: Result<(Arc<Exchange>, Arc<Shared>)>,
        length: Option<u64>,
    ) -> MapCall<T> {
        MapCall { call: Call::new(started), parts: Vec::new(), length }
    }

    call_handle!();

    /// Runs the call to its end without a handle. Results are discarded; a failure is logged
    /// (`tracing::warn`).
    ///
    /// [`Pool::join`](super::Pool::join) waits for it, as for all calls. Dropping the last handle
    /// of the pool ends it, and so does the end of the program. A task that fails does not cancel
    /// the others.
    pub fn detach(self) {
        self.call.detach();
    }

    /// Shows a progress bar until the results are complete, if standard error is a terminal. Print
    /// lines beside it with [`suspend_progress`](crate::suspend_progress).
    ///
    /// Only with fiber's feature `progress`.
    #[cfg(feature = "progress")]
    pub fn progress(mut self, label: impl Into<String>) -> MapCall<T> {
        self.call.progress(label.into(), self.length);
        self
    }

    /// Blocks this thread until all results are there.
    ///
    /// # Errors
    /// The failure that arrives first; the other tasks are then cancelled. [`Error::WouldDeadlock`]
    /// on fiber's own threads.
    pub fn wait(self) -> Result<Vec<T>> {
        block_on(self)
    }

    fn collect(&mut self) -> Vec<T> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.sort_unstable_by_key(|(first, _)| *first);
        let mut all = Vec::with_capacity(parts.iter().map(|(_, values)| values.len()).sum());
        parts.into_iter().for_each(|(_, values)| all.extend(values));
        all
    }
}

impl<T: DeserializeOwned> Future for MapCall<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<T>>> {
        loop {
            let result = match ready!(self.call.poll_arrived(context)) {
                Some(Ok(Arrived::Outcomes(run))) => {
                    let first = run.start;
                    self.call
                        .decode(run)
                        .collect::<Result<Vec<T>>>()
                        .map(|values| self.parts.push((first, values)))
                }
                Some(Ok(Arrived::Failed(_, error)) | Err(error)) => Err(error),
                None => return Poll::Ready(Ok(self.collect())),
            };
            if let Err(error) = result {
                // Nobody will ask for the rest.
                if let Ok(active) = &mut self.call.active {
                    active.exchange.stop();
                    active.pool.cancel(active.exchange.id, Ending::LetFinish);
                    active.finished = true;
                    active.progress.finish();
                }
                return Poll::Ready(Err(error));
            }
        }
    }
}

/// Many tasks under way: a stream of their results, in the order of the arguments.
///
/// A task that fails is an `Err` in its place; the stream goes on.
#[must_use = "dropping this cancels every task that has not begun: take the results with `for`, `.wait()` or as a \
              `Stream`, or use `.detach()` to run without it"]
pub struct ImapCall<T> {
    call: Call<T>,
    next: u64,
    early: BTreeMap<u64, Arrived>,
    current: Option<Decode<T>>,
    #[cfg_attr(not(feature = "progress"), expect(dead_code, reason = "progress bars show it"))]
    length: Option<u64>,
    ended: bool,
}

debug_handle!(ImapCall);

/// Many tasks under way: a stream of their results, as they come.
///
/// A task that fails is an `Err`; the stream goes on.
#[must_use = "dropping this cancels every task that has not begun: take the results with `for`, `.wait()` or as a \
              `Stream`, or use `.detach()` to run without it"]
pub struct ImapUnorderedCall<T> {
    call: Call<T>,
    current: Option<Decode<T>>,
    #[cfg_attr(not(feature = "progress"), expect(dead_code, reason = "progress bars show it"))]
    length: Option<u64>,
    ended: bool,
}

debug_handle!(ImapUnorderedCall);

macro_rules! stream_handle {
    ($name:ident) => {
        impl<T: DeserializeOwned> $name<T> {
            call_handle!();

            /// Shows a progress bar while results arrive, if standard error is a terminal.
            /// Print lines beside it with [`suspend_progress`](crate::suspend_progress).
            ///
            /// Only with fiber's feature `progress`.
            #[cfg(feature = "progress")]
            pub fn progress(mut self, label: impl Into<String>) -> $name<T> {
                self.call.progress(label.into(), self.length);
                self
            }

            /// Returns the results as an iterator, which blocks this thread while the next is not
            /// there. A `for` loop over the handle does the same.
            pub fn wait(self) -> Blocking<$name<T>> {
                Blocking::new(self)
            }

            fn poll_current(&mut self) -> Option<Result<T>> {
                let current = self.current.as_mut()?;
                let result = current.next();
                if current.index == current.end {
                    self.current = None;
                }
                result
            }
        }

        impl<T: DeserializeOwned> IntoIterator for $name<T> {
            type Item = Result<T>;
            type IntoIter = Blocking<$name<T>>;

            /// As [`wait`](Self::wait).
            fn into_iter(self) -> Blocking<$name<T>> {
                self.wait()
            }
        }

        impl<'a, T: DeserializeOwned> IntoIterator for &'a mut $name<T> {
            type Item = Result<T>;
            type IntoIter = Blocking<&'a mut $name<T>>;

            /// As `wait`; the handle is there for the rest.
            fn into_iter(self) -> Blocking<&'a mut $name<T>> {
                Blocking::new(self)
            }
        }
    };
}

stream_handle!(ImapCall);
stream_handle!(ImapUnorderedCall);

impl<T: DeserializeOwned> ImapCall<T> {
    pub(super) fn new(
        started: Result<(Arc<Exchange>, Arc<Shared>)>,
        length: Option<u64>,
    ) -> ImapCall<T> {
        let call = Call::new(started);
        ImapCall { call, next: 0, early: BTreeMap::new(), current: None, length, ended: false }
    }

    /// Runs the call to its end without a handle. Results are discarded; a failure is logged
    /// (`tracing::warn`).
    ///
    /// [`Pool::join`](super::Pool::join) waits for it, as for all calls. Dropping the last handle
    /// of the pool ends it, and so does the end of the program.
    pub fn detach(self) {
        self.early.values().for_each(|arrived| self.call.took(arrived));
        self.call.detach();
    }
}

impl<T: DeserializeOwned> ImapUnorderedCall<T> {
    pub(super) fn new(
        started: Result<(Arc<Exchange>, Arc<Shared>)>,
        length: Option<u64>,
    ) -> ImapUnorderedCall<T> {
        ImapUnorderedCall { call: Call::new(started), current: None, length, ended: false }
    }

    /// Runs the call to its end without a handle. Results are discarded; a failure is logged
    /// (`tracing::warn`).
    ///
    /// [`Pool::join`](super::Pool::join) waits for it, as for all calls. Dropping the last handle
    /// of the pool ends it, and so does the end of the program.
    pub fn detach(self) {
        self.call.detach();
    }
}

impl<T: DeserializeOwned> Stream for ImapCall<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        loop {
            if let Some(result) = self.poll_current() {
                return Poll::Ready(Some(result));
            }
            let next = self.next;
            match self.early.remove(&next) {
                Some(arrived) => {
                    self.call.took(&arrived);
                    match arrived {
                        Arrived::Outcomes(run) => {
                            self.next = run.end;
                            self.current = Some(self.call.decode(run));
                        }
                        Arrived::Failed(index, error) => {
                            self.next = index + 1;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                }
                None if self.ended => return Poll::Ready(None),
                None => match ready!(self.call.poll_arrived(context)) {
                    Some(Ok(arrived)) => drop(self.early.insert(arrived.start(), arrived)),
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
        if let Some(result) = self.poll_current() {
            return Poll::Ready(Some(result));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.call.poll_arrived(context)) {
            Some(Ok(arrived)) => {
                self.call.took(&arrived);
                match arrived {
                    Arrived::Outcomes(run) => {
                        self.current = Some(self.call.decode(run));
                        Poll::Ready(self.poll_current())
                    }
                    Arrived::Failed(_, error) => Poll::Ready(Some(Err(error))),
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
