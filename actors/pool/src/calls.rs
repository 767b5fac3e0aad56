//! The handles of calls: futures and streams that any async runtime can await, and that threads can
//! wait for.

mod decode;
mod ordered;
mod single;
mod stream;

use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, Result, forks};
use fiber_values::slot::Waiting;
use serde::de::DeserializeOwned;

use self::decode::Decoder;
pub(super) use self::decode::encoded;
pub(super) use self::decode::failures;
use super::batch::ResultBatch;
use super::exchange::Exchange;
use super::outputs::CallOutputs;
use super::progress::Progress;
use super::run::Run;
use super::state::{Cancellation, PoolState};

pub use self::single::{ApplyCall, MapCall};
pub use self::stream::{ImapCall, ImapUnorderedCall, OutputStream};

/// A call that the pool has accepted.
pub(super) type Accepted = (Arc<Exchange>, Arc<PoolState>);

/// A call of a task for each item, and the number of items, if it is known.
pub(super) type Submitted = (Result<Accepted>, Option<u64>);

/// A call in progress.
pub(super) struct ActiveCall {
    pub(super) exchange: Arc<Exchange>,
    pool: Arc<PoolState>,
    progress: Progress,
    /// How many recorded outcomes had been delivered at the last batch.
    recorded: u64,
    finished: bool,
    /// The wait of a task of the pool for an outcome.
    waiting: Option<Waiting>,
}

impl ActiveCall {
    pub(super) fn new((exchange, pool): Accepted) -> ActiveCall {
        let progress = Progress::default();
        let (recorded, finished, waiting) = (0, false, None);
        ActiveCall { exchange, pool, progress, recorded, finished, waiting }
    }

    /// Returns the error of a pool that has ended.
    pub(super) fn ended(&self) -> Error {
        let ended = self.pool.check_not_ended();
        ended.err().unwrap_or(Error::Cancelled { function: self.exchange.function })
    }

    pub(super) fn poll_batch(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<ResultBatch>>> {
        forks::check()?;
        let batch = self.exchange.poll_batch(context);
        if self.pool.is_outer() {
            Waiting::note(&mut self.waiting, &batch);
        }
        let batch = ready!(batch);
        match &batch {
            Some(Ok(batch)) => {
                self.progress.advance(batch.len(), self.exchange.total());
                let recorded = self.exchange.recorded();
                if std::mem::replace(&mut self.recorded, recorded) != recorded {
                    self.progress.forget_rate();
                }
            }
            Some(Err(_)) | None => {
                self.finished = true;
                self.progress.finish();
            }
        }
        Poll::Ready(batch)
    }

    /// Lets outcomes go into these outputs. Values stay where they are made.
    pub(super) fn pass_to(&self, outputs: Arc<CallOutputs>) {
        self.exchange.pass_to(outputs);
        self.pool.with_scheduler(|scheduler, effects| {
            scheduler.has_outputs(self.exchange.id);
            scheduler.takes_at_once(self.exchange.id, effects);
        });
    }

    /// Lets values stay where they are made, although the caller takes outcomes one by one.
    fn keep_values(&self) {
        self.exchange.keep_values();
        self.pool.with_scheduler(|scheduler, _| scheduler.has_outputs(self.exchange.id));
    }

    /// Frees the room of outcomes that are not stored any more.
    pub(super) fn consumed(&self, batch: &ResultBatch) {
        if self.exchange.consumed(batch) {
            self.pool.report(&self.exchange);
        }
    }

    /// Takes the outcomes on the runtime's thread until the call ends. Results are not decoded,
    /// because that runs the program's code, which must not block this thread.
    fn detach(mut self) {
        let runtime = self.pool.runtime;
        runtime.spawn(move || async move {
            while let Some(batch) = poll_fn(|context| self.poll_batch(context)).await {
                match batch {
                    Ok(batch) => {
                        self.consumed(&batch);
                        failures(self.exchange.function, batch).iter().for_each(warn);
                    }
                    Err(error) => return warn(&error),
                }
            }
        });
    }

    fn cancel(&mut self) {
        self.pool.cancel(self.exchange.id, Cancellation::KillWorkers);
        self.exchange.end(Error::Cancelled { function: self.exchange.function });
    }

    /// Cancels the tasks that have not started, because no result is taken any more.
    fn abandon(&mut self) {
        self.exchange.stop();
        self.pool.cancel(self.exchange.id, Cancellation::LetFinish);
        self.finished = true;
        self.progress.finish();
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        if !self.finished && !forks::is_forked() {
            self.abandon();
        }
    }
}

fn warn(error: &Error) {
    tracing::warn!("a detached call failed: {error}");
}

/// A call, or the error that prevented it.
struct Call<T> {
    active: Result<ActiveCall>,
    /// The number of its tasks, if it is known from the start.
    length: Option<u64>,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Call<T> {
    fn new((accepted, length): Submitted) -> Call<T> {
        Call { active: accepted.map(ActiveCall::new), length, value: PhantomData }
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ResultBatch>>> {
        match &mut self.active {
            Ok(active) => active.poll_batch(context),
            Err(error) => Poll::Ready(Some(Err(error.clone()))),
        }
    }

    fn function(&self) -> &'static str {
        self.active.as_ref().map_or("", |active| active.exchange.function)
    }

    fn decoder(&self, run: Run) -> Decoder<T> {
        let durable = self.active.as_ref().ok().and_then(|active| active.exchange.durable.clone());
        Decoder::new(self.function(), run, durable)
    }

    fn consumed(&self, batch: &ResultBatch) {
        if let Ok(active) = &self.active {
            active.consumed(batch);
        }
    }

    fn cancel(&mut self) {
        if let Ok(active) = &mut self.active {
            active.cancel();
        }
    }

    fn detach(self) {
        match self.active {
            // Polling a call again after its end would never return.
            Ok(active) if active.finished => {}
            Ok(active) => active.detach(),
            Err(error) => warn(&error),
        }
    }

    #[cfg(feature = "progress")]
    fn progress(&mut self, label: String) {
        if let Ok(active) = &mut self.active {
            active.progress = Progress::new(label, self.length.or(active.exchange.total()));
        }
    }
}

macro_rules! cancel_method {
    ($(#[$example:meta])*) => {
        /// Cancels the call at once. The handle then gives [`Error::Cancelled`], after results that
        /// have arrived already.
        ///
        /// Tasks that have not started do not run. Workers that run a task of the call are killed
        /// and replaced, which costs the start of a process each; tasks of other calls on them run
        /// again. Does not wait for any of this.
        ///
        /// Dropping the handle is milder: running tasks run to their end, and their results are
        /// discarded. [`detach`](Self::detach) runs all tasks.
        ///
        /// [`Error::Cancelled`]: fiber_core::Error::Cancelled
        ///
        /// # Examples
        /// ```
        /// # fiber::init();
        /// use std::time::Duration;
        ///
        /// let pool = fiber::Pool::new(1)?;
        $(#[$example])*
        /// # Ok::<(), fiber::Error>(())
        /// ```
        pub fn cancel(&mut self) {
            self.call.cancel();
        }
    };
}

macro_rules! handle_traits {
    ($name:ident) => {
        impl<T> std::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        // The handle contains no `T` in place.
        impl<T> Unpin for $name<T> {}
    };
}

use {cancel_method, handle_traits};
