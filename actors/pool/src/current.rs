//! The pool that runs a task, for the task.
//!
//! In a worker this is a pool of the process's own, whose scheduler has one worker: the pool that
//! runs the task. Assignments and commands go up the worker's link, and outcomes come back, in the
//! messages that go the other way between that pool and its workers. [`inner_calls`] answers.
//!
//! [`inner_calls`]: super::inner_calls

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fiber_core::{Error, Exit, Meta, PoolEndReason, Result, forks};
use fiber_runtime::parts::Parts;
use fiber_runtime::runtime::Runtime;
use fiber_transport::Link;
use tokio::sync::mpsc;

use super::Pool;
use super::run::CallId;
use super::scheduler::WorkerId;
use super::scheduling::{Effects, SharedLife};
use super::state::PoolState;
use super::wire::Results;
use super::worker_handle::WorkerHandle;

/// The worker that stands for the pool.
const OUTER: WorkerId = 0;
/// How many tasks it gets before the time of one is known. It shares them out among its workers.
const SLOTS: u64 = 256;
/// The most tasks around a call that each wait for the next.
const MOST_AROUND: u32 = 256;

/// The pool that runs the tasks of this process.
#[derive(Default)]
pub(super) struct CurrentPool {
    outer: OnceLock<Outer>,
    pool: OnceLock<Pool>,
    has_ended: AtomicBool,
}

/// The worker's end of the link to its pool.
pub(super) struct Outer {
    pub(super) runtime: &'static Runtime,
    pub(super) link: Arc<dyn Link>,
    pub(super) name: String,
    pub(super) max_message: usize,
}

impl CurrentPool {
    /// Notes that this process is a worker.
    pub(super) fn set(&self, outer: Outer) {
        let _ = self.outer.set(outer);
    }

    /// Ends the calls that tasks of this process have made: the pool stops this worker.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.end_pool();
    }

    fn end_pool(&self) {
        if let Some(pool) = self.pool.get() {
            pool.state().with_life(|life, effects| life.end(PoolEndReason::Closed, effects));
        }
    }

    /// Handles outcomes of calls that tasks of this process have made.
    pub(super) fn receive(&self, results: Results) {
        if let Some(pool) = self.pool.get() {
            pool.state()
                .with_scheduler(|scheduler, effects| scheduler.complete(OUTER, results, effects));
        }
    }

    /// Ends a task of this process's calls that `workers` workers did not survive.
    pub(super) fn abandoned(&self, task: (CallId, u64), workers: u32, exit: Exit) {
        if let Some(pool) = self.pool.get() {
            pool.state().with_scheduler(|scheduler, effects| {
                scheduler.abandoned(OUTER, task, workers, exit, effects);
            });
        }
    }
}

impl Pool {
    /// Returns the pool that runs this task, so that a task can make tasks.
    ///
    /// All calls work as in the program that made the pool. A call belongs to the task that makes
    /// it: values and outputs stay in the task's worker, and the death of that worker ends the call.
    /// Tasks of such calls start before others that wait, so that what has begun ends before more
    /// begins.
    ///
    /// A task that waits for a call, with `wait` or `.await`, lends its place in the worker to
    /// another task, which runs in a thread of its own, until the outcome is there. So the pool is
    /// never idle because its tasks wait for each other, also with one worker. At most 256 tasks may
    /// wait in a row, each for the next. The time that a task waits counts towards its
    /// [`timeout`](Pool::timeout).
    ///
    /// Options are the defaults, not those of the call that runs the task. The pool's owner alone
    /// changes the pool: [`scale`](Pool::scale), [`stop`](Pool::stop), [`join`](Pool::join) and
    /// [`durable`](Pool::durable) calls fail here, and [`close`](Pool::close) and
    /// [`kill`](Pool::kill) do nothing but log a warning.
    ///
    /// # Errors
    /// [`Error::Invalid`] in a process that is no worker of a pool.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Pool;
    ///
    /// fn fibonacci(n: u64) -> fiber::Result<u64> {
    ///     if n < 2 {
    ///         return Ok(n);
    ///     }
    ///     let pool = Pool::current()?;
    ///     let parts = pool.try_map(fibonacci, [n - 1, n - 2]).wait()?;
    ///     Ok(parts[0] + parts[1])
    /// }
    ///
    /// let pool = Pool::new(1)?;
    /// assert_eq!(pool.try_apply(fibonacci, 7).wait()?, 13);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn current() -> Result<Pool> {
        let current: &CurrentPool = Parts::current().get();
        let Some(outer) = current.outer.get() else {
            let problem = "this process is no worker of a pool: call it in a task function, and \
                           use the pool's own handle elsewhere";
            return Err(Error::invalid("Pool::current", problem));
        };
        let pool = current.pool.get_or_init(|| outer.pool()).clone();
        if current.has_ended.load(Ordering::SeqCst) {
            current.end_pool();
        }
        Ok(pool)
    }
}

impl Outer {
    fn pool(&self) -> Pool {
        // At least the worker that asks is ready.
        let mut life = SharedLife::new(1..=1, SLOTS, None);
        life.start(Meta::new(), &mut Effects::default());
        let state = Arc::new_cyclic(|this| {
            let (runtime, name) = (self.runtime, self.name.clone());
            PoolState::new(this.clone(), runtime, name, self.max_message, life, None)
        });
        let (commands, _) = mpsc::unbounded_channel();
        let (process, place) = (self.runtime.id(), String::new());
        let link = Arc::clone(&self.link);
        let worker = WorkerHandle::new(OUTER, 0, process, place, None, link, commands);
        state.with_scheduler(|scheduler, effects| {
            scheduler.join(OUTER, Arc::new(worker), SLOTS, None, None, effects);
        });
        Pool::of(state)
    }
}

impl PoolState {
    /// Returns whether this stands for the pool that runs the tasks of this process.
    pub(super) fn is_outer(&self) -> bool {
        self.controller.is_none()
    }

    /// Counts the tasks of a call that is cancelled as pending no more: no outcome comes.
    pub(super) fn forget_outer(&self, call: CallId) {
        self.with_scheduler(|scheduler, effects| {
            scheduler.returned(OUTER, call, 0, u64::MAX, effects);
        });
    }

    /// Returns an error for what only the owner of a pool may do.
    pub(super) fn check_owned(&self, method: &'static str) -> Result<()> {
        forks::check()?;
        if !self.is_outer() {
            return Ok(());
        }
        let problem = "this is the pool that runs the task, and only the process that made it may do \
                       this";
        Err(Error::invalid(method, problem))
    }

    /// Returns an error for a call that is too deep.
    pub(super) fn check_depth(&self, depth: u32) -> Result<()> {
        if depth <= MOST_AROUND || !self.is_outer() {
            return Ok(());
        }
        let problem = format!(
            "{depth} tasks wait for this call, each for the next, and {MOST_AROUND} may: let a task \
             return what the next needs, and make the next task where it was called"
        );
        Err(Error::invalid("Pool::current", problem))
    }
}
