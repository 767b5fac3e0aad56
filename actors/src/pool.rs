//! Pools: supervised worker processes that run tasks, and lose none.

mod broadcast;
mod calls;
mod exchange;
mod ledger;
mod manager;
mod progress;
mod run;
mod wire;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix::Addr;
use bytes::Bytes;
use fiber_core::entry::{Entry, EntryRef};
use fiber_core::{
    Error, Exit, ExitReason, Function, Kind, Meta, Output, OutputMode, Result, Tries, TryOutput, Values, codec,
    task_entry,
};
use fiber_transport::Link;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::node::{Command, Node};
use crate::reply::Reply;
use exchange::{Exchange, Release, encode, feed, feed_one, look_after};
use ledger::{Effects, Ledger, Tasks, Terms, WorkerId};
use manager::{Manager, Request, SHORT_LIFE};
use run::{CallId, Run};
use wire::{FromWorker, PoolNote, ToWorker, WorkerNote};

pub use broadcast::Broadcast;
pub use calls::{Apply, Blocking, Imap, ImapUnordered, Map};
pub(crate) use manager::ProcessControl;
pub(crate) use worker::{WorkerRoot, initialize};

/// Supervised worker processes that run task functions.
///
/// A task is any `fn`, or any closure that captures nothing, with arguments and a result that serde can carry; both
/// may be async. The result is what the function returns; with the `try_` forms an `Err` is a failure of the task. Each
/// task is tracked on its own: if a worker dies, what it had not finished is run by others, and each result is
/// delivered once.
///
/// Clones are handles on the same pool. When the last is dropped, the workers end at once, and calls that are under
/// way fail.
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
}

struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.end("was dropped");
        self.shared.manager.do_send(Request::Terminate(Arc::clone(&self.shared), None));
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.shared().name).field("terms", &self.terms).finish()
    }
}

/// What a pool is to be; [`Pool::builder`] makes one.
#[derive(Clone, Debug)]
#[must_use]
pub struct PoolBuilder {
    name: Option<String>,
    processes: Option<usize>,
    scale: Option<RangeInclusive<usize>>,
    threads: usize,
    meta: Meta,
    initializer: Option<Result<(EntryRef, Vec<u8>)>>,
    tasks_per_worker: Option<u64>,
    output: Option<OutputMode>,
}

impl PoolBuilder {
    /// Names the pool; the default is `pool-1` and so on.
    pub fn name(mut self, name: impl Into<String>) -> PoolBuilder {
        self.name = Some(name.into());
        self
    }

    /// Sets the number of worker processes, at least 1. The default is one a processor core.
    pub fn processes(mut self, count: usize) -> PoolBuilder {
        self.processes = Some(count);
        self
    }

    /// Lets the number of worker processes follow the number of tasks, within these bounds.
    pub fn scale_between(mut self, bounds: RangeInclusive<usize>) -> PoolBuilder {
        self.scale = Some(bounds);
        self
    }

    /// Sets how many tasks a worker runs at a time, each on a thread of its own; 1 by default.
    pub fn threads_per_worker(mut self, count: usize) -> PoolBuilder {
        self.threads = count;
        self
    }

    /// Asks for resources for each worker, over what `#[fiber::meta]` of the first task's function asks.
    pub fn meta(mut self, meta: Meta) -> PoolBuilder {
        self.meta = meta;
        self
    }

    /// Has each worker call `function` before its first task. If that fails, the worker counts as not started.
    pub fn initializer<F, A, M, N>(self, function: F, args: A) -> PoolBuilder
    where
        F: Function<A, M>,
        A: Serialize + DeserializeOwned,
        F::Output: Output<N>,
        N: 'static,
    {
        self.initialize::<F, A, M, Values<N>>(function, &args)
    }

    /// As [`initializer`](PoolBuilder::initializer), for a function that returns a `Result` whose error can be displayed.
    pub fn try_initializer<F, A, M, N>(self, function: F, args: A) -> PoolBuilder
    where
        F: Function<A, M>,
        A: Serialize + DeserializeOwned,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        self.initialize::<F, A, M, Tries<N>>(function, &args)
    }

    fn initialize<F, A, M, K>(mut self, function: F, args: &A) -> PoolBuilder
    where
        F: Function<A, M>,
        A: Serialize + DeserializeOwned,
        K: Kind<F::Output>,
    {
        let _ = function;
        let entry = task_entry::<F, A, M, K>().reference();
        self.initializer = Some(codec::encode(args).map(|args| (entry, args)));
        self
    }

    /// Replaces a worker after it has run this many tasks, at least 1.
    pub fn tasks_per_worker(mut self, count: u64) -> PoolBuilder {
        self.tasks_per_worker = Some(count);
        self
    }

    /// Sets where the output of the workers goes; the default is what the configuration says.
    pub fn output(mut self, output: OutputMode) -> PoolBuilder {
        self.output = Some(output);
        self
    }

    /// Makes the pool. Its workers start with the first call, whose function's `#[fiber::meta]` they follow.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that can't be; what [`Config`](fiber_core::Config) finds wrong;
    /// [`Error::NotInitialised`].
    pub fn build(self) -> Result<Pool> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let node = Node::get()?;
        let config = node.config();
        let default = match config.processes {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let bounds = match (self.scale, self.processes) {
            (Some(bounds), _) => bounds,
            (None, count) => count.unwrap_or(default)..=count.unwrap_or(default),
        };
        let invalid = |problem: &str| Err(Error::Invalid { what: "Pool::builder", problem: problem.into() });
        if bounds.is_empty() || *bounds.start() == 0 {
            return invalid(
                "a pool needs at least 1 process: set `processes` to 1 or more, or leave it out for one a core",
            );
        }
        if self.threads == 0 || self.tasks_per_worker == Some(0) {
            return invalid("`threads_per_worker` and `tasks_per_worker` must be at least 1");
        }
        let name = self.name.unwrap_or_else(|| format!("pool-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let max_message = config.max_message.as_u64() as usize;
        let root = WorkerRoot {
            threads: self.threads as u64,
            initializer: self.initializer.transpose()?,
            max_message: max_message as u64,
        };
        let plan = manager::Plan {
            meta: self.meta,
            output: self.output.unwrap_or(config.output),
            root,
            quota: self.tasks_per_worker,
            bounds,
        };
        let shared = Arc::new_cyclic(|weak| Shared {
            node,
            name: name.clone(),
            max_message,
            ledger: Mutex::new(Ledger::new()),
            idle: AtomicUsize::new(0),
            ahead: AtomicU64::new(AHEAD_AT_LEAST),
            state: Mutex::new(State::Open),
            started: AtomicBool::new(false),
            ready: watch::Sender::new(Readiness::default()),
            broadcasts: Mutex::default(),
            manager: manager::start(node, Manager::new(node, name, weak.clone(), plan)),
        });
        Ok(Pool { owner: Arc::new(Owner { shared }), terms: Terms { chunk: 1, timeout: None, retries: 0, deaths: 3 } })
    }

    /// Makes the pool and starts its workers. The reply comes when the first is ready.
    pub fn start(self) -> Reply<Pool> {
        let pool = self.build();
        if let Ok(pool) = &pool {
            pool.shared().ensure_started(Meta::new());
        }
        Reply::new(async move {
            let pool = pool?;
            pool.shared().when_ready(|readiness| readiness.ready > 0).await?;
            Ok(pool)
        })
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
        PoolBuilder {
            name: None,
            processes: None,
            scale: None,
            threads: 1,
            meta: Meta::new(),
            initializer: None,
            tasks_per_worker: None,
            output: None,
        }
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
    /// Tasks of a chunk run in the same worker, one after the other, unless it dies; redelivery is by task all the
    /// same. Without chunks the pool hands out as many together as the time that they take suggests.
    #[must_use]
    pub fn chunk(&self, tasks: u32) -> Pool {
        self.with(|terms| terms.chunk = tasks.max(1))
    }

    /// This pool, for calls whose tasks are tried again when they fail by themselves: up to this many times.
    #[must_use]
    pub fn retries(&self, count: u32) -> Pool {
        self.with(|terms| terms.retries = count)
    }

    /// This pool, for calls whose tasks may each run this long. A worker that runs one for longer is killed, which
    /// counts as its death.
    #[must_use]
    pub fn timeout(&self, limit: Duration) -> Pool {
        self.with(|terms| terms.timeout = Some(limit))
    }

    /// This pool, for calls whose tasks are given up when they have cost this many workers (at least 1, 3 by default).
    ///
    /// Deaths count against a task when it is certain that the worker was running it. When it is not, what the worker
    /// held is run again task by task, alone in a worker, so that the next death is certain.
    #[must_use]
    pub fn max_deaths(&self, count: u32) -> Pool {
        self.with(|terms| terms.deaths = count.max(1))
    }

    fn with(&self, change: impl FnOnce(&mut Terms)) -> Pool {
        let mut pool = self.clone();
        change(&mut pool.terms);
        pool
    }

    /// Runs one task. Its arguments are one value, or a tuple for a function of several.
    pub fn apply<F, A, M, N>(&self, function: F, args: A) -> Apply<<Values<N> as Kind<F::Output>>::Value>
    where
        F: Function<A, M>,
        A: Serialize + DeserializeOwned,
        F::Output: Output<N>,
        N: 'static,
    {
        Apply::new(self.begin_one::<F, A, M, Values<N>>(function, &args))
    }

    /// As [`apply`](Pool::apply), for a function that returns a `Result` whose error can be displayed.
    pub fn try_apply<F, A, M, N>(&self, function: F, args: A) -> Apply<<Tries<N> as Kind<F::Output>>::Value>
    where
        F: Function<A, M>,
        A: Serialize + DeserializeOwned,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        Apply::new(self.begin_one::<F, A, M, Tries<N>>(function, &args))
    }

    /// Runs a task for each item. The results come together, in the order of the items; the first failure ends it.
    pub fn map<F, I, M, N>(&self, function: F, items: I) -> Map<<Values<N> as Kind<F::Output>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize + DeserializeOwned,
        F::Output: Output<N>,
        N: 'static,
    {
        let (call, length) = self.begin::<F, I, M, Values<N>>(function, items, Release::Settled);
        Map::new(call, length)
    }

    /// As [`map`](Pool::map), for a function that returns a `Result` whose error can be displayed.
    pub fn try_map<F, I, M, N>(&self, function: F, items: I) -> Map<<Tries<N> as Kind<F::Output>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize + DeserializeOwned,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        let (call, length) = self.begin::<F, I, M, Tries<N>>(function, items, Release::Settled);
        Map::new(call, length)
    }

    /// Runs a task for each item. The results are a stream in the order of the items, in which a failure takes the
    /// place of a result. Items are taken as results are: an endless iterator runs in bounded memory.
    pub fn imap<F, I, M, N>(&self, function: F, items: I) -> Imap<<Values<N> as Kind<F::Output>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize + DeserializeOwned,
        F::Output: Output<N>,
        N: 'static,
    {
        let (call, length) = self.begin::<F, I, M, Values<N>>(function, items, Release::Taken);
        Imap::new(call, length)
    }

    /// As [`imap`](Pool::imap), for a function that returns a `Result` whose error can be displayed.
    pub fn try_imap<F, I, M, N>(&self, function: F, items: I) -> Imap<<Tries<N> as Kind<F::Output>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize + DeserializeOwned,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        let (call, length) = self.begin::<F, I, M, Tries<N>>(function, items, Release::Taken);
        Imap::new(call, length)
    }

    /// As [`imap`](Pool::imap), with the results in the order in which they come.
    pub fn imap_unordered<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnordered<<Values<N> as Kind<F::Output>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize + DeserializeOwned,
        F::Output: Output<N>,
        N: 'static,
    {
        let (call, length) = self.begin::<F, I, M, Values<N>>(function, items, Release::Taken);
        ImapUnordered::new(call, length)
    }

    /// As [`imap_unordered`](Pool::imap_unordered), for a function that returns a `Result` whose error can be displayed.
    pub fn try_imap_unordered<F, I, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnordered<<Tries<N> as Kind<F::Output>>::Value>
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize + DeserializeOwned,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        let (call, length) = self.begin::<F, I, M, Tries<N>>(function, items, Release::Taken);
        ImapUnordered::new(call, length)
    }

    /// Gives a value to each worker once, also to those that start later. Its handle travels as an argument.
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
    pub fn broadcast<T: Serialize + DeserializeOwned + Send + Sync + 'static>(&self, value: T) -> Result<Broadcast<T>> {
        Broadcast::new(Arc::clone(self.shared()), value)
    }

    /// Waits until all workers that the pool is to have are ready; starts them if need be.
    pub fn wait_until_ready(&self) -> Reply<()> {
        let shared = Arc::clone(self.shared());
        shared.ensure_started(Meta::new());
        Reply::new(async move { shared.when_ready(|readiness| readiness.ready >= readiness.wanted).await })
    }

    /// How many workers are ready for tasks.
    pub fn ready(&self) -> usize {
        self.shared().ready.borrow().ready
    }

    /// Changes the number of worker processes, while they work. Workers that are one too many finish what they hold.
    /// The reply comes when that many are ready and no more.
    pub fn scale(&self, processes: usize) -> Reply<()> {
        let shared = Arc::clone(self.shared());
        if processes == 0 {
            let problem = "a pool needs at least 1 process: `close` or drop it to end it".into();
            return Reply::new(async move { Err(Error::Invalid { what: "Pool::scale", problem }) });
        }
        shared.ensure_started(Meta::new());
        let (noted, begun) = tokio::sync::oneshot::channel();
        shared.manager.do_send(Request::Scale(processes, noted));
        Reply::new(async move {
            // If the manager is gone, the pool has ended, and the next line says so.
            let _ = begun.await;
            shared.when_ready(|readiness| readiness.wanted != processes || readiness.ready == processes).await
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
        shared.manager.do_send(Request::Close);
    }

    /// Closes the pool, and waits until all calls are done and all workers have ended.
    pub fn join(&self) -> Reply<()> {
        self.close();
        self.ended(Request::Join)
    }

    /// Ends the workers at once; calls under way fail. The reply comes when all workers have ended.
    pub fn terminate(&self) -> Reply<()> {
        self.shared().end("was terminated");
        let shared = Arc::clone(self.shared());
        self.ended(|done| Request::Terminate(shared, Some(done)))
    }

    fn ended(&self, request: impl FnOnce(manager::Done) -> Request) -> Reply<()> {
        let (done, ended) = tokio::sync::oneshot::channel();
        self.shared().manager.do_send(request(done));
        Reply::new(async move {
            // If the manager is gone, so are the workers.
            let _ = ended.await;
            Ok(())
        })
    }

    fn begin_one<F, A, M, K>(&self, function: F, args: &A) -> Result<(Arc<Exchange>, Arc<Shared>)>
    where
        F: Function<A, M>,
        A: Serialize + DeserializeOwned,
        K: Kind<F::Output>,
    {
        let _ = function;
        let mut encoded = Vec::with_capacity(64);
        encode(args, &mut encoded, self.shared().max_message)?;
        let exchange = self.open(task_entry::<F, A, M, K>(), Release::Settled, Meta::of::<F>())?;
        feed_one(self.shared(), &exchange, encoded);
        Ok((exchange, Arc::clone(self.shared())))
    }

    #[allow(clippy::type_complexity)]
    fn begin<F, I, M, K>(
        &self,
        function: F,
        items: I,
        release: Release,
    ) -> (Result<(Arc<Exchange>, Arc<Shared>)>, Option<u64>)
    where
        F: Function<I::Item, M>,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize + DeserializeOwned,
        K: Kind<F::Output>,
    {
        let _ = function;
        let items = items.into_iter();
        let length = match items.size_hint() {
            (least, Some(most)) if least == most => Some(least as u64),
            _ => None,
        };
        let entry = task_entry::<F, I::Item, M, K>();
        let call = self.open(entry, release, Meta::of::<F>()).and_then(|exchange| {
            let shared = Arc::clone(self.shared());
            let (feeding, pool) = (Arc::clone(&exchange), Arc::clone(&shared));
            let feeder = std::thread::Builder::new().name("fiber-feed".into());
            match feeder.spawn(move || feed(&pool, &feeding, items)) {
                Ok(_) => {
                    let (pool, looked_after) = (Arc::downgrade(&shared), Arc::clone(&exchange));
                    shared.node.spawn(move || look_after(pool, looked_after));
                    Ok((exchange, shared))
                }
                Err(error) => {
                    shared.cancel(exchange.id, Ending::LetFinish);
                    Err(Error::system("a thread for the items could not be started", error))
                }
            }
        });
        (call, length)
    }

    fn open(&self, entry: &'static Entry, release: Release, meta: Meta) -> Result<Arc<Exchange>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let shared = self.shared();
        let exchange = Exchange::new(NEXT.fetch_add(1, Ordering::Relaxed), entry.name(), release);
        let state = shared.state.lock();
        shared.refusal(&state)?;
        // Under the lock, so that no call begins while the pool ends.
        let mut ledger = shared.ledger.lock();
        ledger.begin(exchange.id, Arc::clone(&exchange), entry.reference(), self.terms);
        drop((ledger, state));
        shared.ensure_started(meta);
        Ok(exchange)
    }
}

/// Tasks that a call may have under way, however heavy they are.
const AHEAD_AT_LEAST: u64 = 64;

/// What becomes of a cancelled call's tasks that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    LetFinish,
    Kill,
}

/// What the handles of a pool, its manager and its workers' attendants share.
pub(crate) struct Shared {
    node: &'static Node,
    name: String,
    max_message: usize,
    ledger: Mutex<Ledger<Arc<Worker>, Arc<Exchange>>>,
    /// How many workers have nothing to do; feeders look at it.
    idle: AtomicUsize,
    ahead: AtomicU64,
    state: Mutex<State>,
    started: AtomicBool,
    ready: watch::Sender<Readiness>,
    broadcasts: Mutex<HashMap<u64, Bytes>>,
    manager: Addr<Manager>,
}

enum State {
    Open,
    Closed,
    /// No worker will do anything any more.
    Ended(String),
}

/// How many workers there are and are to be.
#[derive(Clone, Copy, Debug, Default)]
struct Readiness {
    ready: usize,
    wanted: usize,
}

/// A worker as its pool sees it.
#[derive(Debug)]
pub(crate) struct Worker {
    id: WorkerId,
    /// The name of its place in the pool, which its successor takes over.
    child: String,
    link: Arc<dyn Link>,
    commands: mpsc::UnboundedSender<Command>,
    ready_since: Instant,
}

impl Shared {
    fn refusal(&self, state: &State) -> Result<()> {
        let state = match state {
            State::Open => return Ok(()),
            State::Closed => "is closed: it takes no more calls",
            State::Ended(state) => state,
        };
        Err(Error::PoolEnded { pool: self.name.clone(), state: state.into() })
    }

    /// That the pool has not ended; it may be closed.
    fn still_there(&self) -> Result<()> {
        let state = self.state.lock();
        if matches!(*state, State::Ended(_)) { self.refusal(&state) } else { Ok(()) }
    }

    fn ensure_started(&self, meta: Meta) {
        if !self.started.swap(true, Ordering::AcqRel) {
            self.manager.do_send(Request::Start(meta));
        }
    }

    async fn when_ready(&self, enough: impl Fn(&Readiness) -> bool) -> Result<()> {
        let mut ready = self.ready.subscribe();
        loop {
            {
                let now = ready.borrow_and_update();
                self.still_there()?;
                if now.wanted > 0 && enough(&now) {
                    return Ok(());
                }
            }
            // The sender lives in `self`.
            let _ = ready.changed().await;
        }
    }

    /// Changes the ledger, and does what follows from it.
    fn with_ledger<T>(
        &self,
        change: impl FnOnce(&mut Ledger<Arc<Worker>, Arc<Exchange>>, &mut Effects<Arc<Worker>, Arc<Exchange>>) -> T,
    ) -> T {
        let mut effects = Effects::default();
        let mut ledger = self.ledger.lock();
        let result = change(&mut ledger, &mut effects);
        self.idle.store(ledger.idle(), Ordering::Release);
        let all_done = ledger.is_empty();
        drop(ledger);
        self.perform(effects);
        if all_done && matches!(*self.state.lock(), State::Closed) {
            self.manager.do_send(Request::Close);
        }
        result
    }

    fn perform(&self, effects: Effects<Arc<Worker>, Arc<Exchange>>) {
        // A link or an attendant that is gone means that the worker is: its tasks are queued again when that is known.
        for (worker, assignment) in effects.assignments {
            let _ = worker.link.send(ToWorker::Assignment(assignment).message());
        }
        for (worker, reason) in effects.kills {
            let _ = worker.commands.send(Command::Kill(reason));
        }
        for (worker, drained) in effects.retired {
            if drained {
                self.manager.do_send(Request::Retire(worker.child.clone()));
            } else {
                let _ = worker.commands.send(Command::Shutdown);
            }
        }
        for (exchange, settled) in effects.settled {
            exchange.arrive(settled);
        }
    }

    fn submit(&self, run: Run) {
        self.with_ledger(|ledger, effects| ledger.submit(run, effects));
    }

    fn finish_feeding(&self, call: CallId) {
        self.with_ledger(|ledger, _| ledger.finish_feeding(call));
    }

    fn cancel(&self, call: CallId, ending: Ending) {
        let concerned = self.with_ledger(|ledger, _| ledger.cancel(call));
        for worker in concerned {
            let note = PoolNote::Cancel { call, kill: ending == Ending::Kill };
            let _ = worker.link.send(ToWorker::Note(note).message());
        }
    }

    #[inline]
    fn has_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire) > 0
    }

    #[inline]
    fn ahead_at_least(&self) -> u64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// A worker has become ready.
    fn join(&self, worker: Arc<Worker>, threads: u64, quota: Option<u64>) {
        let broadcasts = self.broadcasts.lock();
        for (id, value) in &*broadcasts {
            let _ = worker.link.send(ToWorker::Broadcast { id: *id, value: value.clone() }.message());
        }
        let count = self.with_ledger(|ledger, effects| {
            ledger.join(worker.id, worker, threads, quota, effects);
            ledger.workers()
        });
        drop(broadcasts);
        self.ahead.fetch_max(4 * count as u64 * threads, Ordering::Relaxed);
        self.ready.send_modify(|readiness| readiness.ready = count);
        self.manager.do_send(Request::Joined);
    }

    /// A worker's process has ended.
    fn lost(&self, worker: &Worker, exit: &Exit) {
        let (count, useless) = self.with_ledger(|ledger, effects| {
            let tasks = ledger.lost(worker.id, exit, effects);
            (ledger.workers(), tasks == Tasks::None && !ledger.is_of_use())
        });
        self.ready.send_modify(|readiness| readiness.ready = count);
        if useless && worker.ready_since.elapsed() < SHORT_LIFE {
            self.manager.do_send(Request::DiedUnused(exit.to_string()));
        } else {
            self.manager.do_send(Request::Lived);
        }
    }

    /// A worker has said something.
    fn receive(&self, worker: &Worker, message: Bytes) {
        let id = worker.id;
        match FromWorker::read(message) {
            Ok(FromWorker::Results(results)) => {
                self.with_ledger(|ledger, effects| ledger.complete(id, results, effects));
            }
            Ok(FromWorker::Note(note)) => self.with_ledger(|ledger, effects| match note {
                WorkerNote::Returned { call, first, count } => ledger.returned(id, call, first, count, effects),
                WorkerNote::Running { call, index } => ledger.runs(id, call, index),
                WorkerNote::Overdue { call, index } => ledger.overdue(id, call, index, effects),
                WorkerNote::RunsCancelled => ledger.runs_cancelled(id, effects),
            }),
            Ok(FromWorker::Large { .. }) => unreachable!("large outcomes are read as results"),
            Err(error) => {
                let _ = worker.commands.send(Command::Kill(ExitReason::LinkLost(error.to_string())));
            }
        }
    }

    fn send_broadcast(&self, id: u64, value: Bytes) -> Result<()> {
        if value.len() > self.max_message {
            let (size, limit) = (value.len() as u64, self.max_message as u64);
            return Err(Error::TooLarge { what: "a broadcast value".into(), size, limit });
        }
        self.still_there()?;
        let mut broadcasts = self.broadcasts.lock();
        for worker in self.ledger.lock().handles() {
            let _ = worker.link.send(ToWorker::Broadcast { id, value: value.clone() }.message());
        }
        broadcasts.insert(id, value);
        Ok(())
    }

    fn forget_broadcast(&self, id: u64) {
        let mut broadcasts = self.broadcasts.lock();
        broadcasts.remove(&id);
        for worker in self.ledger.lock().handles() {
            let _ = worker.link.send(ToWorker::Note(PoolNote::Forget { broadcast: id }).message());
        }
    }

    /// Fails what is under way, and all that comes.
    fn end(&self, why: &str) {
        let mut state = self.state.lock();
        if matches!(*state, State::Ended(_)) {
            return;
        }
        *state = State::Ended(why.to_string());
        drop(state);
        let callers = self.ledger.lock().abandon();
        for exchange in callers {
            exchange.end(Error::PoolEnded { pool: self.name.clone(), state: why.into() });
        }
        self.ready.send_modify(|readiness| readiness.ready = 0);
    }
}
