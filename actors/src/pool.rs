//! Pools: supervised worker processes that run task functions.

mod batch;
mod broadcast;
mod buffer;
mod builder;
mod calls;
mod controller;
mod exchange;
mod feeder;
mod missing;
mod pinned;
#[cfg_attr(not(feature = "progress"), path = "pool/progress/disabled.rs")]
mod progress;
mod run;
mod scheduler;
mod state;
mod submit;
mod wire;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{
    AsResult, AsValue, Error, Function, Meta, Output, PoolEndReason, Portable, Result, TryOutput,
    assert_captures_nothing,
};

use crate::reply::Reply;
use batch::Order;
use controller::ControllerRequest;
use scheduler::CallOptions;
use state::{Phase, PoolState};

pub use broadcast::Broadcast;
pub use builder::PoolBuilder;
pub use calls::{ApplyCall, ImapCall, ImapUnorderedCall, MapCall};
#[cfg(feature = "progress")]
pub use progress::suspend_progress;

/// A pool of supervised worker processes that run task functions.
///
/// A task function is any `fn`, or any closure that captures nothing. It may be async. Serde carries
/// its arguments to a worker and its result back. With the `try_` methods the function returns a
/// `Result`, whose `Err` is the task's failure.
///
/// The pool tracks each task. If a worker dies, other workers run its unfinished tasks, and each
/// result is delivered once. A task may therefore run more than once.
///
/// Clones are handles to the same pool. Dropping the last handle kills the workers and fails all
/// calls. [`stop`](Pool::stop) lets them finish.
///
/// The methods from [`chunk`](Pool::chunk) to [`buffer`](Pool::buffer) return a handle with other
/// options for its calls, and leave this one as it is.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Pool;
///
/// let pool = Pool::new(2)?;
/// let squares = pool.map(|x: u64| x * x, 0..5).wait()?;
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
/// let sum = pool.apply(|a: i32, b: i32| a + b, (1, 2)).wait()?;
/// assert_eq!(sum, 3);
/// pool.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    guard: Arc<KillOnDrop>,
    options: CallOptions,
    /// Bytes that a call may store in this process.
    buffer: u64,
}

/// Kills the workers when the last handle is dropped.
struct KillOnDrop {
    state: Arc<PoolState>,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        kill(&self.state, PoolEndReason::Dropped);
    }
}

fn kill(state: &Arc<PoolState>, reason: PoolEndReason) {
    state.end(reason);
    state.controller.do_send(ControllerRequest::Kill(Arc::clone(state)));
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.state().name)
            .field("options", &self.options)
            .finish()
    }
}

impl Pool {
    /// Makes a pool of `processes` worker processes. They start with the first call.
    ///
    /// # Errors
    /// As [`PoolBuilder::build`].
    pub fn new(processes: usize) -> Result<Pool> {
        Pool::builder().processes(processes).build()
    }

    /// Returns a builder that configures a pool.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    fn of(state: Arc<PoolState>) -> Pool {
        let options =
            CallOptions { chunk: 1, timeout: None, retries: 0, max_deaths: 3, max_timeouts: 1 };
        let buffer = state.runtime.config().call_buffer.as_u64();
        Pool { guard: Arc::new(KillOnDrop { state }), options, buffer }
    }

    fn state(&self) -> &Arc<PoolState> {
        &self.guard.state
    }

    /// Returns the pool's name.
    pub fn name(&self) -> &str {
        &self.state().name
    }

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
    /// let lengths = pool.chunk(10).map(|text: String| text.len(), ["a".into(), "bc".into()]).wait()?;
    /// assert_eq!(lengths, [1, 2]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn chunk(&self, tasks: u32) -> Pool {
        self.with(|options| options.chunk = tasks.max(1))
    }

    /// Returns a handle whose calls run a failed task again up to `count` times. The default is 0.
    ///
    /// Failures are panics, and the `Err` of a `try_` method. Deaths and timeouts have limits of
    /// their own: [`max_deaths`](Pool::max_deaths) and [`max_timeouts`](Pool::max_timeouts).
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn retries(&self, count: u32) -> Pool {
        self.with(|options| options.retries = count)
    }

    /// Returns a handle whose calls limit the time of each task, counted from its start. The default
    /// is no limit.
    ///
    /// The pool kills a worker that runs a task past the limit. The task fails with
    /// [`Error::WorkerDied`], whose exit has the reason
    /// [`ExitReason::TaskTimedOut`](fiber_core::ExitReason::TaskTimedOut), or runs again if
    /// [`max_timeouts`](Pool::max_timeouts) allows it. Other tasks of that worker run again in
    /// another worker, and nothing counts against them.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let pool = fiber::Pool::new(1)?.timeout(Duration::from_millis(50));
    /// let error = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ()).wait().unwrap_err();
    /// assert!(matches!(error, fiber::Error::WorkerDied { .. }));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn timeout(&self, limit: Duration) -> Pool {
        self.with(|options| options.timeout = Some(limit))
    }

    /// Returns a handle whose calls abandon a task when it has run past its
    /// [timeout](Pool::timeout) `count` times (at least 1).
    ///
    /// The default is 1: a task that times out fails at once. With `n`, a task that hangs fails
    /// after `n` times its timeout. Timeouts do not count as deaths.
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn max_timeouts(&self, count: u32) -> Pool {
        self.with(|options| options.max_timeouts = count.max(1))
    }

    /// Returns a handle whose calls abandon a task when `count` workers have died while they ran it
    /// (at least 1). The default is 3.
    ///
    /// A death counts against a task only if the worker was certainly running it. Otherwise the
    /// tasks that were pending at the worker run again one at a time, each alone in a worker, so
    /// that the next death is certain.
    ///
    /// The pool can't distinguish a worker that is killed from outside, by SIGKILL or by the OOM
    /// killer, from one that its task has killed. Such deaths count, and so do evictions and
    /// preemptions: raise the limit where they are frequent. Deaths that the pool causes do not
    /// count: timeouts, [cancelled](ApplyCall::cancel) calls, [`scale`](Pool::scale) and
    /// [`tasks_per_worker`](PoolBuilder::tasks_per_worker).
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn max_deaths(&self, count: u32) -> Pool {
        self.with(|options| options.max_deaths = count.max(1))
    }

    /// Returns a handle whose calls each store at most `bytes` bytes of arguments and results in
    /// this process. The default is `call_buffer` of the [configuration](fiber_core::Config)
    /// (64 MiB).
    ///
    /// [`imap`](Pool::imap) and [`imap_unordered`](Pool::imap_unordered) store results that have
    /// arrived and have not been taken. Half of the bytes are for these, half for arguments. While
    /// the half for arguments is full, the call takes no items from the iterator; while the half for
    /// results is full, the pool hands out no tasks. [`map`](Pool::map) stores all results whatever
    /// their size, so the limit applies to its arguments alone.
    ///
    /// Two tasks for each thread of the workers, and a [`chunk`](Pool::chunk), may exceed the limit.
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
        Pool { buffer: bytes, ..self.clone() }
    }

    fn with(&self, change: impl FnOnce(&mut CallOptions)) -> Pool {
        let mut pool = self.clone();
        change(&mut pool.options);
        pool
    }

    /// Runs one task. `args` is one value, or a tuple for a function of several.
    ///
    /// Returns at once. Errors come out of the handle: see [`ApplyCall::wait`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// assert_eq!(pool.apply(|a: i32, b: i32| a + b, (1, 2)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn apply<F, A, M, N>(
        &self,
        function: F,
        args: A,
    ) -> ApplyCall<<F::Output as Output<N>>::Value>
    where
        F: Function<A, M, Output: Output<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        ApplyCall::new(self.submit_one::<F, A, M, AsValue<N>>(function, &args))
    }

    /// Works as [`apply`](Pool::apply), for a function that returns a `Result` whose error
    /// implements `Display`. An `Err` is the task's failure.
    pub fn try_apply<F, A, M, N>(
        &self,
        function: F,
        args: A,
    ) -> ApplyCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<A, M, Output: TryOutput<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        ApplyCall::new(self.submit_one::<F, A, M, AsResult<N>>(function, &args))
    }

    /// Runs a task for each item, and gives all results together, in the order of the items.
    ///
    /// Returns at once. The first failure ends the call: see [`MapCall::wait`]. This process stores
    /// all results until the last has arrived. Where they don't fit into its memory, use
    /// [`imap`](Pool::imap).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// assert_eq!(pool.map(|x: u64| x * x, 0..5).wait()?, [0, 1, 4, 9, 16]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn map<F, I, M, N>(&self, function: F, items: I) -> MapCall<<F::Output as Output<N>>::Value>
    where
        F: Function<I::Item, M, Output: Output<N>>,
        I: IntoIterator<Item: Portable, IntoIter: Send + 'static>,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (call, length) = self.submit::<F, I, M, AsValue<N>>(function, items, Order::Together);
        MapCall::new(call, length)
    }

    /// Works as [`map`](Pool::map), for a function that returns a `Result` whose error implements
    /// `Display`. An `Err` is the task's failure.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let numbers = pool.try_map(|text: String| text.parse::<u32>(), ["1".into(), "2".into()]).wait()?;
    /// assert_eq!(numbers, [1, 2]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn try_map<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> MapCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<I::Item, M, Output: TryOutput<N>>,
        I: IntoIterator<Item: Portable, IntoIter: Send + 'static>,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (call, length) = self.submit::<F, I, M, AsResult<N>>(function, items, Order::Together);
        MapCall::new(call, length)
    }

    /// Runs a task for each item, and gives a stream of the results, in the order of the items.
    ///
    /// Returns at once. A failure takes the place of its result in the stream. The call takes items
    /// from the iterator as results are taken from the stream, so an endless iterator runs in
    /// bounded memory: see [`buffer`](Pool::buffer).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let first: Result<Vec<u64>, _> = pool.imap(|x: u64| x * x, 0..).wait().take(3).collect();
    /// assert_eq!(first?, [0, 1, 4]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn imap<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapCall<<F::Output as Output<N>>::Value>
    where
        F: Function<I::Item, M, Output: Output<N>>,
        I: IntoIterator<Item: Portable, IntoIter: Send + 'static>,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (call, length) = self.submit::<F, I, M, AsValue<N>>(function, items, Order::Tasks);
        ImapCall::new(call, length)
    }

    /// Works as [`imap`](Pool::imap), for a function that returns a `Result` whose error implements
    /// `Display`. An `Err` is the task's failure.
    pub fn try_imap<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<I::Item, M, Output: TryOutput<N>>,
        I: IntoIterator<Item: Portable, IntoIter: Send + 'static>,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (call, length) = self.submit::<F, I, M, AsResult<N>>(function, items, Order::Tasks);
        ImapCall::new(call, length)
    }

    /// Works as [`imap`](Pool::imap), with the results in the order of arrival.
    pub fn imap_unordered<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnorderedCall<<F::Output as Output<N>>::Value>
    where
        F: Function<I::Item, M, Output: Output<N>>,
        I: IntoIterator<Item: Portable, IntoIter: Send + 'static>,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (call, length) = self.submit::<F, I, M, AsValue<N>>(function, items, Order::Arrival);
        ImapUnorderedCall::new(call, length)
    }

    /// Works as [`imap_unordered`](Pool::imap_unordered), for a function that returns a `Result`
    /// whose error implements `Display`. An `Err` is the task's failure.
    pub fn try_imap_unordered<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnorderedCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<I::Item, M, Output: TryOutput<N>>,
        I: IntoIterator<Item: Portable, IntoIter: Send + 'static>,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (call, length) = self.submit::<F, I, M, AsResult<N>>(function, items, Order::Arrival);
        ImapUnorderedCall::new(call, length)
    }

    /// Sends a value to each worker once, and to workers that start later. Tasks receive its handle
    /// as an argument.
    ///
    /// # Errors
    /// [`Error::Encode`] if the value can't be serialised; [`Error::TooLarge`] if it exceeds
    /// `max_message` of the [configuration](fiber_core::Config); [`Error::PoolEnded`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Broadcast, Pool};
    ///
    /// let pool = Pool::new(2)?;
    /// let table = pool.broadcast(vec![10, 20, 30])?;
    /// let look_up = |index: usize, table: Broadcast<Vec<u32>>| table.get().map(|table| table[index]);
    /// let items: Vec<_> = (0..3).map(|index| (index, table.clone())).collect();
    /// assert_eq!(pool.try_map(look_up, items).wait()?, [10, 20, 30]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn broadcast<T: Portable + Send + Sync + 'static>(&self, value: T) -> Result<Broadcast<T>> {
        Broadcast::new(Arc::clone(self.state()), value)
    }

    /// Waits until all workers are ready. Starts them if no call has.
    ///
    /// While some workers are ready, this does not wait for those that the cluster has no room for,
    /// nor for those whose starts fail for two seconds. The pool keeps trying to start them.
    /// [`ready`](Pool::ready) returns how many workers are ready.
    ///
    /// # Errors
    /// [`Error::PoolEnded`], with the reason if no worker can be started.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// pool.wait_until_ready().wait()?;
    /// assert_eq!(pool.ready(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait_until_ready(&self) -> Reply<()> {
        let state = Arc::clone(self.state());
        state.ensure_started(Meta::new());
        Reply::new(async move { state.when_ready(|workers| workers.ready >= workers.wanted).await })
    }

    /// Returns how many workers are ready for tasks.
    pub fn ready(&self) -> usize {
        self.state().readiness.borrow().ready
    }

    /// Changes the number of worker processes to `processes`, at least 1, while calls run.
    ///
    /// Superfluous workers finish their pending tasks before they stop. The reply is ready when
    /// exactly `processes` workers are ready, with the exceptions of
    /// [`wait_until_ready`](Pool::wait_until_ready). The change happens even if the reply is dropped.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0; [`Error::PoolEnded`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// pool.scale(2).wait()?;
    /// assert_eq!(pool.ready(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn scale(&self, processes: usize) -> Reply<()> {
        let state = Arc::clone(self.state());
        if processes == 0 {
            let problem = "a pool needs at least 1 process: use `stop` or drop it to end it";
            return Reply::new(async move { Err(Error::invalid("Pool::scale", problem)) });
        }
        state.ensure_started(Meta::new());
        let (noted, answer) = tokio::sync::oneshot::channel();
        state.controller.do_send(ControllerRequest::Scale(processes, noted));
        Reply::new(async move {
            // If the controller is gone, the pool has ended, which `when_ready` returns.
            let _ = answer.await;
            state
                .when_ready(|workers| workers.wanted != processes || workers.ready == processes)
                .await
        })
    }

    /// Refuses new calls. Calls in progress continue, and the workers stop after the last.
    ///
    /// Returns at once. [`join`](Pool::join) waits for the end.
    pub fn close(&self) {
        let state = self.state();
        let mut phase = state.phase.lock();
        if matches!(*phase, Phase::Open) {
            *phase = Phase::Closed;
        }
        drop(phase);
        state.controller.do_send(ControllerRequest::Close);
    }

    /// Waits until the pool has ended and all its workers with it.
    ///
    /// This does not end the pool: [`close`](Pool::close), [`stop`](Pool::stop) and
    /// [`kill`](Pool::kill) do. A pool also ends when it fails to start any worker.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// let answer = pool.apply(|| 42, ());
    /// pool.close();
    /// pool.join().wait()?;
    /// assert_eq!(answer.wait()?, 42);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(&self) -> Reply<()> {
        let (done, ended) = tokio::sync::oneshot::channel();
        self.state().controller.do_send(ControllerRequest::Join(done));
        Reply::new(async move {
            // If the controller is gone, so are the workers.
            let _ = ended.await;
            Ok(())
        })
    }

    /// Stops the pool: refuses new calls, and waits until all calls are done and all workers have
    /// ended.
    ///
    /// This is [`close`](Pool::close) followed by [`join`](Pool::join). The pool stops even if the
    /// reply is dropped.
    pub fn stop(&self) -> Reply<()> {
        self.close();
        self.join()
    }

    /// Kills the workers at once (SIGKILL). All calls fail with [`Error::PoolEnded`].
    ///
    /// Returns at once. [`join`](Pool::join) waits until all workers have ended.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let pool = fiber::Pool::new(1)?;
    /// let call = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ());
    /// pool.kill();
    /// assert!(matches!(call.wait(), Err(fiber::Error::PoolEnded { .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn kill(&self) {
        kill(self.state(), PoolEndReason::Killed);
    }
}
