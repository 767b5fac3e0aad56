//! The options of a pool's calls.

use std::sync::Arc;
use std::time::Duration;

use fiber_journal::Journal;

use super::Pool;
use super::durable::JournalOption;
use super::pool::HandleOptions;

impl Pool {
    /// Returns a handle whose calls hand out at least `tasks` tasks together (at least 1).
    ///
    /// One worker runs the tasks of a chunk in a row. If it dies, only its unfinished tasks run
    /// again. Without chunks the pool hands out as many tasks together as take about 4 ms for each
    /// thread of a worker.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let squares = pool.chunk(10).map(|x: u64| x * x, 0..100).wait()?;
    /// assert_eq!(squares[99], 9801);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn chunk(&self, tasks: u32) -> Pool {
        self.with_options(|options| options.call.chunk = tasks.max(1))
    }

    /// Returns a handle whose calls run a failed task again up to `count` times. The default is 0.
    ///
    /// Failures are panics, and the `Err` of a `try_` method. The task runs again without a pause,
    /// before tasks that have not started, perhaps in the same worker. Deaths and timeouts have
    /// limits of their own: [`max_deaths`](Pool::max_deaths) and
    /// [`max_timeouts`](Pool::max_timeouts).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// fn fails_at_first() -> Result<u32, String> {
    ///     static CALLS: AtomicU32 = AtomicU32::new(0);
    ///     match CALLS.fetch_add(1, Ordering::Relaxed) {
    ///         0 => Err("this worker is not ready".to_string()),
    ///         calls => Ok(calls),
    ///     }
    /// }
    ///
    /// let pool = fiber::Pool::new(1)?;
    /// assert_eq!(pool.retries(1).try_apply(fails_at_first, ()).wait()?, 1);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn retries(&self, count: u32) -> Pool {
        self.with_options(|options| options.call.retries = count)
    }

    /// Returns a handle whose calls limit the time of each task, counted from its start. The
    /// default is no limit. A worker learns after 5 ms that a task runs, so a shorter limit, also
    /// one of zero, counts as 5 ms.
    ///
    /// The pool kills a worker that runs a task past the limit. The task fails with
    /// [`Error::TaskTimedOut`](fiber_core::Error::TaskTimedOut), or runs again if
    /// [`max_timeouts`](Pool::max_timeouts) allows it. Other tasks of that worker run again in
    /// another worker, and nothing counts against them.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let pool = fiber::Pool::new(1)?.timeout(Duration::from_millis(50));
    /// let result = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ()).wait();
    /// assert!(matches!(result, Err(fiber::Error::TaskTimedOut { .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn timeout(&self, limit: Duration) -> Pool {
        self.with_options(|options| options.call.timeout = Some(limit))
    }

    /// Returns a handle whose calls abandon a task when it has run past its
    /// [timeout](Pool::timeout) `count` times (at least 1).
    ///
    /// The default is 1: a task that times out fails at once. With `n`, a task that hangs fails
    /// after `n` times its timeout. Each time costs a worker and the start of its replacement.
    /// Timeouts do not count as deaths.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let pool = fiber::Pool::new(1)?.timeout(Duration::from_millis(50)).max_timeouts(2);
    /// let result = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ()).wait();
    /// assert!(matches!(result, Err(fiber::Error::TaskTimedOut { deaths: 2, .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn max_timeouts(&self, count: u32) -> Pool {
        self.with_options(|options| options.call.max_timeouts = count.max(1))
    }

    /// Returns a handle whose calls abandon a task when `count` workers have died while they ran it
    /// (at least 1). The default is 3.
    ///
    /// A death counts against a task only if the worker was certainly running it. Otherwise the
    /// tasks that were pending at the worker run again one at a time, each alone in a worker, so
    /// that the next death is certain.
    ///
    /// The death of a [host](crate::PoolBuilder::processes_per_job) ends many workers, and one of
    /// their tasks at most is its cause: a task is abandoned after 3 × `count` deaths of hosts. An
    /// OOM kill of the whole job counts as a death of each worker.
    ///
    /// The pool can't distinguish a worker that is killed from outside, by SIGKILL or by the OOM
    /// killer, from one that its task has killed. Such deaths count: raise the limit where they are
    /// frequent. Evictions, preemptions and SIGTERM never count, nor do ends that the pool causes:
    /// timeouts, [cancelled](super::ApplyCall::cancel) calls, [`scale`](Pool::scale) and
    /// [`tasks_per_worker`](super::PoolBuilder::tasks_per_worker).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?.max_deaths(1);
    /// let error = pool.apply(|| std::process::abort(), ()).wait().unwrap_err();
    /// assert!(matches!(error, fiber::Error::WorkerDied { deaths: 1, .. }));
    /// assert_eq!(pool.apply(|| 7, ()).wait()?, 7); // in the worker's replacement
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn max_deaths(&self, count: u32) -> Pool {
        self.with_options(|options| options.call.max_deaths = count.max(1))
    }

    /// Returns a handle whose calls each store at most `bytes` bytes of arguments and results in
    /// this process. The default is `call_buffer` of the [configuration](fiber_core::Config)
    /// (64 MiB).
    ///
    /// [`imap`](Pool::imap) and [`imap_unordered`](Pool::imap_unordered) store results that have
    /// arrived and have not been taken. Half of the bytes are for these, half for arguments. While
    /// the half for arguments is full, the call takes no items from the iterator; while the half
    /// for results is full, the pool hands out no tasks. [`map`](Pool::map) stores all results
    /// whatever their size, so the limit applies to its arguments alone.
    ///
    /// Two tasks for each thread of the workers, and a [`chunk`](Pool::chunk), may exceed the
    /// limit.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?.buffer(16 << 20);
    /// for image in pool.imap(|seed: u8| vec![seed; 1 << 20], 0..50) {
    ///     assert_eq!(image?.len(), 1 << 20);
    /// }
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn buffer(&self, bytes: u64) -> Pool {
        self.with_options(|options| options.buffer = bytes)
    }

    /// Returns a handle whose calls record each outcome in a journal before they deliver it.
    ///
    /// When the program is started again, tasks with a recorded outcome do not run: the outcome
    /// comes from the journal, in the order and form that it would have otherwise. So a program
    /// that was killed, by whatever signal or power cut, goes on where it was. A text is the
    /// journal of that name: see [`Journal`]. [Durable work] has the promises, what identifies a
    /// task, and what it costs.
    ///
    /// The first call opens the journal, on the thread that makes it. The journal is open until the
    /// program ends, so many calls share one rather than have one each.
    ///
    /// Calls fail with [`Error::Journal`](fiber_core::Error::Journal) if the journal can't be
    /// opened, read or written, for example because another process writes to it. They fail with
    /// [`Error::Invalid`](fiber_core::Error::Invalid) outside of the program's first process, for
    /// arguments with handles (queues, addresses, broadcast values), and if two closures can't be
    /// told apart.
    ///
    #[doc = concat!("[Durable work]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/durable.md")]
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::env::set_current_dir(folder.path()).unwrap();
    /// let pool = fiber::Pool::new(2)?.durable("sweep-7");
    /// let squares = pool.map(|x: u64| x * x, 0..100).wait()?;
    /// assert_eq!(squares[99], 9801);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn durable(&self, journal: impl Into<Journal>) -> Pool {
        let journal = Some(Arc::new(JournalOption::new(journal.into())));
        self.with_options(|options| options.journal = journal)
    }

    pub(super) fn with_options(&self, change: impl FnOnce(&mut HandleOptions)) -> Pool {
        let mut pool = self.clone();
        change(&mut pool.options);
        pool
    }
}
