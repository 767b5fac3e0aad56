//! Single flight: callers that need the same thing at the same time share one attempt at it, and
//! its error.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::BackendError;

/// A value that is made on first use, by at most one attempt at a time.
///
/// A caller that arrives during an attempt waits for it and gets its outcome. Unlike with `OnceCell`,
/// that may be its error. A caller that arrives after a failure makes a new attempt: an error is
/// never kept for later callers, because its cause may pass. If the caller that makes the attempt is
/// dropped, the next one that waits makes it.
#[derive(Debug)]
pub(crate) struct SingleFlightCell<T> {
    value: OnceLock<T>,
    /// How many attempts have failed.
    failed: AtomicU64,
    /// Locked by the attempt in progress. Holds the error of the last failed attempt, for callers
    /// that waited for it.
    error: Mutex<Option<BackendError>>,
}

impl<T> Default for SingleFlightCell<T> {
    fn default() -> SingleFlightCell<T> {
        let (failed, error) = Default::default();
        SingleFlightCell { value: OnceLock::new(), failed, error }
    }
}

impl<T> SingleFlightCell<T> {
    /// Returns the value if it exists.
    #[cfg(feature = "slurm")]
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value, and makes it if it does not exist yet.
    ///
    /// # Errors
    /// The error of the attempt to make it.
    pub(crate) async fn get_or_try_init(
        &self,
        make: impl AsyncFnOnce() -> Result<T, BackendError>,
    ) -> Result<&T, BackendError> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let failed = self.failed.load(Ordering::Acquire);
        let mut error = self.error.lock().await;
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        if let Some(error) =
            error.as_ref().filter(|_| self.failed.load(Ordering::Acquire) != failed)
        {
            return Err(error.clone());
        }
        match make().await {
            Ok(value) => Ok(self.value.get_or_init(|| value)),
            Err(problem) => {
                *error = Some(problem.clone());
                self.failed.fetch_add(1, Ordering::Release);
                Err(problem)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    use super::*;

    /// A value that takes several polls to make, and fails at first.
    #[derive(Default)]
    struct Maker {
        attempts: Cell<u32>,
        fails: Cell<bool>,
    }

    impl Maker {
        async fn make(&self) -> Result<u32, BackendError> {
            self.attempts.set(self.attempts.get() + 1);
            yield_now().await;
            if self.fails.get() {
                Err(refused!("attempt {} failed", self.attempts.get()))
            } else {
                Ok(7)
            }
        }
    }

    #[tokio::test]
    async fn callers_at_the_same_time_share_one_failure_and_a_later_one_tries_again() {
        let (shared, maker) = (SingleFlightCell::default(), Maker::default());
        maker.fails.set(true);
        let all = || join_all((0..5).map(|_| shared.get_or_try_init(async || maker.make().await)));
        for number in [1, 2] {
            let error = refused!("attempt {number} failed");
            assert!(all().await.iter().all(|outcome| *outcome == Err(error.clone())));
        }
        maker.fails.set(false);
        assert_eq!(all().await, [Ok(&7), Ok(&7), Ok(&7), Ok(&7), Ok(&7)]);
        assert_eq!(all().await[0], Ok(&7));
        assert_eq!(maker.attempts.get(), 3);
    }

    #[tokio::test]
    async fn an_attempt_whose_caller_is_dropped_is_made_by_the_next_one() {
        let (shared, maker, gate) =
            (SingleFlightCell::default(), Maker::default(), Semaphore::new(0));
        let mut first = Box::pin(shared.get_or_try_init(async || {
            let _permit = gate.acquire().await.map_err(|error| error.to_string())?;
            maker.make().await
        }));
        let mut second = Box::pin(shared.get_or_try_init(async || maker.make().await));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!((second.await, maker.attempts.get()), (Ok(&7), 1));
    }
}
