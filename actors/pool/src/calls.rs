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

use fiber_core::{Error, Result};
use serde::de::DeserializeOwned;

use self::decode::{Decoder, failures};
use super::batch::ResultBatch;
use super::exchange::Exchange;
use super::progress::Progress;
use super::run::Run;
use super::state::{Cancellation, PoolState};

pub use self::single::{ApplyCall, MapCall};
pub use self::stream::{ImapCall, ImapUnorderedCall};

/// A call that the pool has accepted.
pub(super) type Accepted = (Arc<Exchange>, Arc<PoolState>);

/// A call in progress.
struct ActiveCall {
    exchange: Arc<Exchange>,
    pool: Arc<PoolState>,
    progress: Progress,
    /// How many recorded outcomes had been delivered at the last batch.
    recorded: u64,
    finished: bool,
}

impl ActiveCall {
    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ResultBatch>>> {
        let batch = ready!(self.exchange.poll_batch(context));
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

    /// Frees the room of outcomes that are not stored any more.
    fn consumed(&self, batch: &ResultBatch) {
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
        if !self.finished {
            self.exchange.stop();
            self.pool.cancel(self.exchange.id, Cancellation::LetFinish);
        }
    }
}

fn warn(error: &Error) {
    tracing::warn!("a detached call failed: {error}");
}

/// A call, or the error that prevented it.
struct Call<T> {
    active: Result<ActiveCall>,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Call<T> {
    fn new(accepted: Result<Accepted>) -> Call<T> {
        let active = accepted.map(|(exchange, pool)| ActiveCall {
            exchange,
            pool,
            progress: Progress::default(),
            recorded: 0,
            finished: false,
        });
        Call { active, value: PhantomData }
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ResultBatch>>> {
        match &mut self.active {
            Ok(active) => active.poll_batch(context),
            Err(error) => Poll::Ready(Some(Err(error.clone()))),
        }
    }

    fn decoder(&self, run: Run) -> Decoder<T> {
        let function = self.active.as_ref().map_or("", |active| active.exchange.function);
        Decoder::new(function, run)
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
    fn progress(&mut self, label: String, length: Option<u64>) {
        if let Ok(active) = &mut self.active {
            active.progress = Progress::new(label, length.or(active.exchange.total()));
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
