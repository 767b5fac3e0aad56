//! Pools: supervised worker processes that run tasks, and lose none.

mod absence;
mod broadcast;
mod buffer;
mod builder;
mod calls;
mod controller;
mod exchange;
mod feeder;
mod pinned;
#[cfg_attr(not(feature = "progress"), path = "pool/progress/disabled.rs")]
mod progress;
mod run;
mod scheduler;
mod shared;
mod wire;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fiber_core::entry::Entry;
use fiber_core::{
    Error, Function, Meta, Output, OutputKind, PoolEndReason, Portable, Result, Tries, TryOutput,
    Values, captures_nothing, shortage, task_entry,
};

use crate::reply::Reply;
use exchange::{Exchange, Order};
use feeder::{encode, feed, feed_one, look_after};
use scheduler::Terms;
use shared::{Done, Ending, Request, Shared, State};

pub use broadcast::Broadcast;
pub use builder::PoolBuilder;
pub use calls::{ApplyCall, ImapCall, ImapUnorderedCall, MapCall};

#[cfg(feature = "progress")]
pub use progress::suspend_progress;

/// Supervised worker processes that run task functions.
///
/// A task is any `fn`, or any closure that captures nothing, with arguments and a result that serde
/// can carry; both may be async. The result is what the function returns; with the `try_` forms an
/// `Err` is a failure of the task. Each task is tracked on its own: if a worker dies, what it had
/// not finished is run by others, and each result is delivered once.
///
/// Clones are handles on the same pool. When the last is dropped, the workers end at once, and
/// calls that are under way fail.
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
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    owner: Arc<Owner>,
    terms: Terms,
    /// Bytes that a call may store in this process.
    buffer: u64,
}

struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.end(PoolEndReason::Dropped);
        self.shared.controller.do_send(Request::Terminate(Arc::clone(&self.shared), None));
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.shared().name)
            .field("terms", &self.terms)
            .finish()
    }
}

impl Pool {
    /// A pool of this many worker processes, which start with the first call.
    ///
    /// # Errors
    /// As [`PoolBuilder::build`].
    pub fn new(processes: usize) -> Result<Pool> {
        Pool::builder().processes(processes).build()
    }

    /// A pool to be.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    fn of(shared: Arc<Shared>) -> Pool {
        let terms = Terms { chunk: 1, timeout: None, retries: 0, deaths: 3, timeouts: 1 };
        let buffer = shared.runtime.config().call_buffer.as_u64();
        Pool { owner: Arc::new(Owner { shared }), terms, buffer }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// This pool, for calls that hand out at least `tasks` tasks together (at least 1).
    ///
    /// Tasks of a chunk run in the same worker, one after the other, unless it dies; redelivery is
    /// by task all the same. Without chunks the pool hands out as many together as the time that
    /// they take suggests.
    #[must_use]
    pub fn chunk(&self, tasks: u32) -> Pool {
        self.with(|terms| terms.chunk = tasks.max(1))
    }

    /// This pool, for calls whose tasks are tried again when they fail by themselves: up to this
    /// many times.
    #[must_use]
    pub fn retries(&self, count: u32) -> Pool {
        self.with(|terms| terms.retries = count)
    }

    /// This pool, for calls whose tasks may each run this long, counted from the start of the task.
    ///
    /// A worker that runs one for longer is killed, and the task fails with [`Error::WorkerDied`],
    /// whose exit has the reason
    /// [`ExitReason::TaskTimedOut`](fiber_core::ExitReason::TaskTimedOut). With
    /// [`max_timeouts`](Pool::max_timeouts) it is run again first. Other tasks of that worker run
    /// again elsewhere, and nothing counts against them.
    #[must_use]
    pub fn timeout(&self, limit: Duration) -> Pool {
        self.with(|terms| terms.timeout = Some(limit))
    }

    /// This pool, for calls whose tasks are abandoned when they have run past their
    /// [timeout](Pool::timeout) this many times (at least 1, which is the default: a task that
    /// times out fails at once).
    ///
    /// With `n`, a task that hangs fails after `n` times its timeout. Timeouts are not deaths:
    /// [`max_deaths`](Pool::max_deaths) does not count them.
    #[must_use]
    pub fn max_timeouts(&self, count: u32) -> Pool {
        self.with(|terms| terms.timeouts = count.max(1))
    }

    /// This pool, for calls whose tasks are abandoned when this many workers have died while they
    /// ran them (at least 1, 3 by default).
    ///
    /// Deaths count against a task when it is certain that the worker was running it. When it is
    /// not, what the worker held is run again task by task, alone in a worker, so that the next
    /// death is certain.
    ///
    /// A worker that is killed from outside, by SIGKILL or by the OOM killer, looks the same as one
    /// that its task killed, so it counts as well: raise this where workers are killed by others.
    /// Evicted and preempted workers count too. Not counted are timeouts, which
    /// [`max_timeouts`](Pool::max_timeouts) counts, and the workers that the pool ends by itself:
    /// after a [cancelled](ApplyCall::cancel) call, by [`scale`](Pool::scale), or after
    /// [`tasks_per_worker`](PoolBuilder::tasks_per_worker).
    #[must_use]
    pub fn max_deaths(&self, count: u32) -> Pool {
        self.with(|terms| terms.deaths = count.max(1))
    }

    /// This pool, for calls that store at most this many bytes of arguments and results in this
    /// process; `call_buffer` of the [configuration](fiber_core::Config) (64 MiB) without it.
    ///
    /// [`imap`](Pool::imap) and [`imap_unordered`](Pool::imap_unordered) store results that have
    /// arrived and have not been taken. Half of the bytes are for them, half for arguments. While a
    /// half is full, no more items are taken from the iterator, or no more tasks are handed out.
    /// [`map`](Pool::map) stores all results, whatever they take, so there this limits the
    /// arguments alone.
    ///
    /// Two tasks for each thread of the workers are let through whatever they take, and a
    /// [`chunk`](Pool::chunk) is handed out whole.
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
    #[must_use]
    pub fn buffer(&self, bytes: u64) -> Pool {
        Pool { buffer: bytes, ..self.clone() }
    }

    fn with(&self, change: impl FnOnce(&mut Terms)) -> Pool {
        let mut pool = self.clone();
        change(&mut pool.terms);
        pool
    }

    /// Runs one task. Its arguments are one value, or a tuple for a function of several.
    pub fn apply<F, A, M, N>(
        &self,
        function: F,
        args: A,
    ) -> ApplyCall<<F::Output as Output<N>>::Value>
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        ApplyCall::new(self.begin_one::<F, A, M, Values<N>>(function, &args))
    }

    /// As [`apply`](Pool::apply), for a function that returns a `Result` whose error can be
    /// displayed.
    pub fn try_apply<F, A, M, N>(
        &self,
        function: F,
        args: A,
    ) -> ApplyCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        ApplyCall::new(self.begin_one::<F, A, M, Tries<N>>(function, &args))
    }

    /// Runs a task for each item. The results come together, in the order of the items; the first
    /// failure ends it.
    ///
    /// All results are stored until then. Where they don't fit into memory together, use
    /// [`imap`](Pool::imap).
    pub fn map<F, I, M, N>(&self, function: F, items: I) -> MapCall<<F::Output as Output<N>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        let (call, length) = self.begin::<F, I, M, Values<N>>(function, items, Order::Together);
        MapCall::new(call, length)
    }

    /// As [`map`](Pool::map), for a function that returns a `Result` whose error can be displayed.
    pub fn try_map<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> MapCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Portable,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        let (call, length) = self.begin::<F, I, M, Tries<N>>(function, items, Order::Together);
        MapCall::new(call, length)
    }

    /// Runs a task for each item. The results are a stream in the order of the items, in which a
    /// failure takes the place of a result. Items are taken as results are: an endless iterator
    /// runs in bounded memory, which [`buffer`](Pool::buffer) sets.
    pub fn imap<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapCall<<F::Output as Output<N>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        let (call, length) = self.begin::<F, I, M, Values<N>>(function, items, Order::Tasks);
        ImapCall::new(call, length)
    }

    /// As [`imap`](Pool::imap), for a function that returns a `Result` whose error can be
    /// displayed.
    pub fn try_imap<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Portable,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        let (call, length) = self.begin::<F, I, M, Tries<N>>(function, items, Order::Tasks);
        ImapCall::new(call, length)
    }

    /// As [`imap`](Pool::imap), with the results in the order in which they come.
    pub fn imap_unordered<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnorderedCall<<F::Output as Output<N>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        let (call, length) = self.begin::<F, I, M, Values<N>>(function, items, Order::Arrival);
        ImapUnorderedCall::new(call, length)
    }

    /// As [`imap_unordered`](Pool::imap_unordered), for a function that returns a `Result` whose
    /// error can be displayed.
    pub fn try_imap_unordered<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnorderedCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Portable,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        let (call, length) = self.begin::<F, I, M, Tries<N>>(function, items, Order::Arrival);
        ImapUnorderedCall::new(call, length)
    }

    /// Gives a value to each worker once, also to those that start later. Its handle travels as an
    /// argument.
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`], or that the pool has ended.
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
        Broadcast::new(Arc::clone(self.shared()), value)
    }

    /// Waits until the workers that the pool is to have are ready; starts them if need be.
    ///
    /// While others are ready, workers that the cluster has no room for are not waited for, and
    /// neither are those whose start failed and fails again for two seconds: the pool goes on
    /// trying to start them. [`ready`](Pool::ready) counts those that are ready.
    pub fn wait_until_ready(&self) -> Reply<()> {
        let shared = Arc::clone(self.shared());
        shared.ensure_started(Meta::new());
        Reply::new(async move {
            shared.when_ready(|readiness| readiness.ready >= readiness.wanted).await
        })
    }

    /// How many workers are ready for tasks.
    pub fn ready(&self) -> usize {
        self.shared().ready.borrow().ready
    }

    /// Changes the number of worker processes, while they work. Workers that are one too many
    /// finish what they hold. The reply comes when that many are ready and no more. As in
    /// [`wait_until_ready`](Pool::wait_until_ready), it does not wait for those that can't be
    /// started.
    pub fn scale(&self, processes: usize) -> Reply<()> {
        let shared = Arc::clone(self.shared());
        if processes == 0 {
            let problem = "a pool needs at least 1 process: `close` or drop it to end it";
            return Reply::new(async move { Err(Error::invalid("Pool::scale", problem)) });
        }
        shared.ensure_started(Meta::new());
        let (noted, begun) = tokio::sync::oneshot::channel();
        shared.controller.do_send(Request::Scale(processes, noted));
        Reply::new(async move {
            // If the manager is gone, the pool has ended, and the next line says so.
            let _ = begun.await;
            shared
                .when_ready(|readiness| {
                    readiness.wanted != processes || readiness.ready == processes
                })
                .await
        })
    }

    /// Takes no more calls. Those under way go on, and the workers end after the last.
    pub fn close(&self) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        if matches!(*state, State::Open) {
            *state = State::Closed;
        }
        drop(state);
        shared.controller.do_send(Request::Close);
    }

    /// Closes the pool, and waits until all calls are done and all workers have ended.
    pub fn join(&self) -> Reply<()> {
        self.close();
        self.ended(Request::Join)
    }

    /// Ends the workers at once; calls under way fail. The reply comes when all workers have ended.
    pub fn terminate(&self) -> Reply<()> {
        self.shared().end(PoolEndReason::Killed);
        let shared = Arc::clone(self.shared());
        self.ended(|done| Request::Terminate(shared, Some(done)))
    }

    fn ended(&self, request: impl FnOnce(Done) -> Request) -> Reply<()> {
        let (done, ended) = tokio::sync::oneshot::channel();
        self.shared().controller.do_send(request(done));
        Reply::new(async move {
            // If the manager is gone, so are the workers.
            let _ = ended.await;
            Ok(())
        })
    }

    fn begin_one<F, A, M, K>(&self, function: F, args: &A) -> Result<(Arc<Exchange>, Arc<Shared>)>
    where
        F: Function<A, M>,
        A: Portable,
        K: OutputKind<F::Output>,
    {
        let _ = function;
        let mut encoded = Vec::with_capacity(64);
        let pins = encode(args, &mut encoded, self.shared().max_message)?;
        let exchange = self.open(task_entry::<F, A, M, K>(), Order::Together, Meta::of::<F>())?;
        exchange.pins.add(0, pins);
        feed_one(self.shared(), &exchange, encoded);
        Ok((exchange, Arc::clone(self.shared())))
    }

    #[allow(clippy::type_complexity)]
    fn begin<F, I, M, K>(
        &self,
        function: F,
        items: I,
        order: Order,
    ) -> (Result<(Arc<Exchange>, Arc<Shared>)>, Option<u64>)
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Portable,
        K: OutputKind<F::Output>,
    {
        let _ = function;
        let items = items.into_iter();
        let length = match items.size_hint() {
            (least, Some(most)) if least == most => Some(least as u64),
            _ => None,
        };
        let entry = task_entry::<F, I::Item, M, K>();
        let call = self.open(entry, order, Meta::of::<F>()).and_then(|exchange| {
            let shared = Arc::clone(self.shared());
            let (feeding, pool) = (Arc::clone(&exchange), Arc::clone(&shared));
            let feeder = std::thread::Builder::new().name("fiber-feed".into());
            match feeder.spawn(move || feed(&pool, &feeding, items)) {
                Ok(_) => {
                    let (pool, looked_after) = (Arc::downgrade(&shared), Arc::clone(&exchange));
                    shared.runtime.spawn(move || look_after(pool, looked_after));
                    Ok((exchange, shared))
                }
                Err(error) => {
                    shared.cancel(exchange.id, Ending::LetFinish);
                    Err(Error::system(
                        "a thread for the items could not be started",
                        shortage::Explained(error),
                    ))
                }
            }
        });
        (call, length)
    }

    fn open(&self, entry: &'static Entry, order: Order, meta: Meta) -> Result<Arc<Exchange>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let shared = self.shared();
        let exchange =
            Exchange::new(NEXT.fetch_add(1, Ordering::Relaxed), entry.name(), order, self.buffer);
        let state = shared.state.lock();
        shared.refusal(&state)?;
        // Under the lock, so that no call begins while the pool ends.
        let mut scheduler = shared.scheduler.lock();
        scheduler.begin(exchange.id, Arc::clone(&exchange), entry.reference(), self.terms);
        drop((scheduler, state));
        shared.ensure_started(meta);
        Ok(exchange)
    }
}
