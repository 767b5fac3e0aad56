//! The handle of a ring's run.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, Result, RingProblem, block_on, forks};
use fiber_values::codec::EncodedValue;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, Outcome};
use fiber_runtime::reply::Reply;
use fiber_runtime::sources::Sources;
use fiber_supervisor::supervisor::SupervisorBuilder;

/// A running ring: a future of the values that its function returns, by rank.
///
/// It is ready when all nodes have ended. Its errors are those of
/// [`RingBuilder::run`](crate::RingBuilder::run). Dropping it kills the ring.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Ring, RingNode};
///
/// let run = Ring::run(2, |node: RingNode| node.rank() * 10, ());
/// println!("{} runs in processes {:?}", run.name(), run.started().wait()?);
/// assert_eq!(run.wait()?, [0, 10]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "dropping it kills the ring: use `.await` or `.wait()`"]
pub struct RingRun<T> {
    name: String,
    outcome: oneshot::Receiver<Outcome>,
    /// `None` if the run has not started, because of an error or because it is over.
    coordinator: Option<Arc<Coordinator>>,
    over: bool,
    /// The folder of the journal that has the results of a run that is over.
    journal: Option<String>,
    value: PhantomData<fn() -> T>,
}

/// A run that can start, or one that is over, as its journal has its results.
pub(super) enum PreparedRun {
    Start(Arc<Coordinator>, SupervisorBuilder),
    Finished(Vec<EncodedValue>, Option<String>),
}

impl<T> RingRun<T> {
    /// Starts a prepared run. An error comes out of the handle.
    pub(super) fn start(name: String, prepared: Result<PreparedRun>) -> RingRun<T> {
        let (done, outcome) = oneshot::channel();
        let mut journal = None;
        let coordinator = match prepared {
            Ok(PreparedRun::Start(coordinator, supervisor)) => {
                coordinator.runtime.part::<Sources>().register(&coordinator);
                let run = Arc::clone(&coordinator).run(supervisor);
                coordinator.runtime.spawn(move || async move { drop(done.send(run.await)) });
                Some(coordinator)
            }
            Ok(PreparedRun::Finished(values, folder)) => {
                journal = folder;
                let _ = done.send(Ok(values));
                None
            }
            Err(error) => {
                let _ = done.send(Err(error));
                None
            }
        };
        RingRun { name, outcome, coordinator, over: false, journal, value: PhantomData }
    }

    /// Returns the ring's name, which errors, logs and the
    /// [tree](fiber_supervisor::supervisor::tree()) show. [`RingRun`] has an example.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of a rank's process, or `None` before its start and after its end. A restart
    /// changes it. [`kill_rank`](RingRun::kill_rank) has an example.
    pub fn pid(&self, rank: usize) -> Option<u32> {
        self.coordinator.as_ref()?.pids.borrow().get(rank).copied().flatten()
    }

    /// Waits until the processes of all nodes have started, and returns their ids by rank.
    /// [`RingRun`] has an example.
    ///
    /// # Errors
    /// [`Error::Ring`] if the run ends before that.
    pub fn started(&self) -> Reply<Vec<u32>> {
        let coordinator = self.coordinator.clone();
        let name = self.name.clone();
        Reply::new(async move {
            let ended = || Error::Ring { name, problem: RingProblem::NotStarted };
            let Some(coordinator) = coordinator else { return Err(ended()) };
            let mut pids = coordinator.pids.subscribe();
            let all =
                pids.wait_for(|pids| pids.is_empty() || pids.iter().all(Option::is_some)).await;
            match all {
                Ok(all) if !all.is_empty() => Ok(all.iter().copied().flatten().collect()),
                _ => Err(ended()),
            }
        })
    }

    /// Kills the processes of all ranks (SIGKILL) and ends the run, without waiting.
    ///
    /// The handle then returns [`Error::Ring`], unless the run has already ended. A node has no
    /// orderly end before its function returns, so there is no `stop`.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::error::{Error, RingProblem};
    /// use fiber::{Ring, RingNode};
    ///
    /// let run = Ring::run(2, |_: RingNode| std::thread::park(), ());
    /// run.kill();
    /// assert!(matches!(run.wait(), Err(Error::Ring { problem: RingProblem::Killed, .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn kill(&self) {
        if let Some(coordinator) = self.reachable() {
            coordinator.fail(RingProblem::Killed);
        }
    }

    /// Kills the process of one rank (SIGKILL), without waiting.
    ///
    /// The ring handles it as any death of a rank: it restarts all ranks from their last
    /// [checkpoint](crate::RingNode::checkpoint), or the run ends with [`Error::RankDied`]. It does
    /// nothing if the rank has no process.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Error, Ring, RingNode};
    ///
    /// let run = Ring::run(2, |_: RingNode| std::thread::park(), ());
    /// let pids = run.started().wait()?;
    /// assert_eq!(run.pid(1), Some(pids[1]));
    /// run.kill_rank(1);
    /// assert!(matches!(run.wait(), Err(Error::RankDied { rank: 1, .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn kill_rank(&self, rank: usize) {
        if let Some(coordinator) = self.reachable() {
            coordinator.kill_rank(rank);
        }
    }

    /// Returns the coordinator, unless this is a fork, where its lock may be held for good.
    fn reachable(&self) -> Option<&Arc<Coordinator>> {
        self.coordinator.as_ref().filter(|_| !forks::is_forked())
    }
}

impl<T: DeserializeOwned> RingRun<T> {
    /// Blocks this thread until all nodes have ended, and returns the values of the function by
    /// rank. [`RingRun`] has an example.
    ///
    /// # Errors
    /// As [`RingBuilder::run`](crate::RingBuilder::run).
    pub fn wait(self) -> Result<Vec<T>> {
        block_on(self)
    }
}

impl<T> Unpin for RingRun<T> {}

impl<T: DeserializeOwned> Future for RingRun<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<T>>> {
        forks::check()?;
        let lost = |_| Err(Error::system("running the ring failed", "fiber's thread ended"));
        let outcome = ready!(Pin::new(&mut self.outcome).poll(context)).unwrap_or_else(lost);
        self.over = true;
        let values = outcome.and_then(|values| values.iter().map(EncodedValue::decode).collect());
        Poll::Ready(values.map_err(|error: Error| error.recorded(self.journal.as_deref())))
    }
}

impl<T> Drop for RingRun<T> {
    fn drop(&mut self) {
        let is_over = self.over || forks::is_forked();
        if let Some(coordinator) = self.coordinator.take().filter(|_| !is_over) {
            coordinator.fail(RingProblem::Dropped);
        }
    }
}

impl<T> fmt::Debug for RingRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingRun").field("name", &self.name).finish_non_exhaustive()
    }
}
