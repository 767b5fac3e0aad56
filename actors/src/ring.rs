//! Ranked processes that work together.
//!
//! The owner has a supervisor for each run, one for all, whose children are the ranks' processes
//! ([`owner`]). A rank runs its function on its main thread ([`root`]), which reads and writes the
//! streams to the other ranks itself ([`lines`]): through shared memory where all are on one host,
//! else over links ([`linked`]).

mod call;
mod collective;
mod element;
mod function;
mod line;
mod lines;
mod linked;
mod node;
mod owner;
mod rendezvous;
mod root;
mod wire;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fiber_core::entry::EntryRef;
use fiber_core::travel::Pins;
use fiber_core::{
    Error, Function, Meta, Output, OutputKind, OutputMode, Portable, Result, Tries, TryOutput,
    Values, block_on, captures_nothing, codec, travel,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};

pub use self::element::{Number, Reduction};
pub use self::function::{Alone, RingFunction};
pub use self::node::RingNode;
use self::owner::{Outcome, Owner, RankStart, State};
pub use self::rendezvous::Rendezvous;
pub(crate) use self::root::RingMain;
use self::root::ring_entry;
use crate::process::Initializer;
use crate::reply::Reply;
use crate::runtime::Runtime;
use crate::supervisor::{Backoff, ChildSpec, Restart, Shutdown, Strategy, Supervisor};

/// Processes with ranks that run one function and work together: see [`RingNode`] for what they can
/// do.
///
/// All ranks are processes of their own; the one that runs the ring is none of them. They are
/// supervised one for all: if one dies, the run ends with an error, or, where the function takes
/// [checkpoints](RingNode::checkpoint), all are started again and go on from the last one.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Reduction, Ring, RingNode};
///
/// fn mean_of_ranks(mut runtime: RingNode, weight: f64) -> fiber::Result<f64> {
///     let mut value = [runtime.rank() as f64 * weight];
///     runtime.all_reduce(&mut value, Reduction::Mean)?;
///     Ok(value[0])
/// }
///
/// let means = Ring::builder().size(4).try_run(mean_of_ranks, 10.0).wait()?;
/// assert_eq!(means, [15.0; 4]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Ring;

impl Ring {
    /// A ring to be.
    pub fn builder() -> RingBuilder {
        RingBuilder {
            name: None,
            size: None,
            meta: Meta::default(),
            output: None,
            initializer: None,
            timeout: Duration::from_secs(300),
            intensity: (3, Duration::from_secs(5)),
            backoff: Backoff::default(),
        }
    }

    /// Runs `function` on a ring of `size` nodes, with its [`RingNode`] and `args`.
    ///
    /// See [`RingBuilder::run`].
    pub fn run<F, A, M, N>(
        size: usize,
        function: F,
        args: A,
    ) -> RingRun<<F::Output as Output<N>>::Value>
    where
        F: RingFunction<A, M>,
        A: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        Ring::builder().size(size).start::<F, A, M, Values<N>>(function, &args)
    }
}

/// A [`Ring`] to be; [`Ring::builder`] makes one.
#[derive(Clone, Debug)]
#[must_use]
pub struct RingBuilder {
    name: Option<String>,
    size: Option<usize>,
    meta: Meta,
    output: Option<OutputMode>,
    initializer: Option<Result<Initializer>>,
    timeout: Duration,
    intensity: (u32, Duration),
    backoff: Backoff,
}

impl RingBuilder {
    /// Names the ring, for errors and the [tree](crate::tree); the default is `ring-1` and so on.
    pub fn name(mut self, name: impl Into<String>) -> RingBuilder {
        self.name = Some(name.into());
        self
    }

    /// Sets the number of nodes, at least 1. The default is one a processor core.
    pub fn size(mut self, size: usize) -> RingBuilder {
        self.size = Some(size);
        self
    }

    /// Asks for resources for each runtime, over what the function's `#[fiber::meta]` asks.
    pub fn meta(mut self, meta: Meta) -> RingBuilder {
        self.meta = meta;
        self
    }

    /// Sets where the output of the nodes goes; the default is what the configuration says.
    pub fn output(mut self, output: OutputMode) -> RingBuilder {
        self.output = Some(output);
        self
    }

    /// Has each runtime run this before its function, whenever it starts. If it panics, the run ends.
    pub fn initializer<F, A, M, N>(mut self, function: F, args: A) -> RingBuilder
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        self.initializer = Some(Initializer::new::<F, A, M, Values<N>>(function, &args));
        self
    }

    /// As [`initializer`](RingBuilder::initializer), for a function that returns a `Result` whose
    /// error can be displayed.
    pub fn try_initializer<F, A, M, N>(mut self, function: F, args: A) -> RingBuilder
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        self.initializer = Some(Initializer::new::<F, A, M, Tries<N>>(function, &args));
        self
    }

    /// Sets how long a call of a runtime waits for others while nothing moves; then the run ends with
    /// an error that says what each rank is doing. The default is 5 minutes.
    pub fn timeout(mut self, timeout: Duration) -> RingBuilder {
        self.timeout = timeout;
        self
    }

    /// Sets how often the nodes may be started again in a period. When it is needed once more, the
    /// run ends with an error. The default is 3 times in 5 seconds.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> RingBuilder {
        self.intensity = (restarts, period);
        self
    }

    /// Sets the pause before each restart but the first.
    pub fn backoff(mut self, backoff: Backoff) -> RingBuilder {
        self.backoff = backoff;
        self
    }

    /// Starts the nodes, in which `function` runs with its [`RingNode`] and `args`: one value, or a
    /// tuple for a function that takes several, or `()`. The handle gives what the function has
    /// returned, by rank.
    ///
    /// # Errors
    /// Awaiting the handle gives [`Error::RankDied`] if a runtime died and could not be started again,
    /// [`Error::Ring`] if the ranks did not do the same, [`Error::Task`] if a function panicked
    /// (its `index` is the rank), [`Error::Start`] if a runtime could not be started;
    /// [`Error::Invalid`] for a number that can't be; [`Error::Encode`] and [`Error::TooLarge`] for
    /// the arguments; [`Error::NotInitialised`].
    pub fn run<F, A, M, N>(self, function: F, args: A) -> RingRun<<F::Output as Output<N>>::Value>
    where
        F: RingFunction<A, M>,
        A: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        self.start::<F, A, M, Values<N>>(function, &args)
    }

    /// As [`run`](RingBuilder::run), for a function that returns a `Result` whose error can be
    /// displayed. An `Err` ends the run with [`Error::Task`].
    pub fn try_run<F, A, M, N>(
        self,
        function: F,
        args: A,
    ) -> RingRun<<F::Output as TryOutput<N>>::Value>
    where
        F: RingFunction<A, M>,
        A: Portable,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        self.start::<F, A, M, Tries<N>>(function, &args)
    }

    fn start<F, A, M, K>(self, function: F, args: &A) -> RingRun<K::Value>
    where
        F: RingFunction<A, M>,
        A: Portable,
        K: OutputKind<F::Output>,
    {
        let _ = function;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| format!("ring-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let entry = ring_entry::<F, A, M, K>();
        let (done, outcome) = oneshot::channel();
        let meta = self.meta.or(Meta::of::<F>());
        let (args, pins) = travel::pinned(|| codec::encode(args));
        let prepared = args.and_then(|args| {
            self.prepare(name.clone(), entry.reference(), entry.name(), meta, (args, pins))
        });
        match prepared {
            Ok((owner, intensity, backoff)) => {
                let (running, runtime) = (Arc::clone(&owner), owner.runtime);
                runtime.spawn(move || async move {
                    drop(done.send(supervise(running, intensity, backoff).await))
                });
                RingRun { name, outcome, owner: Some(owner), over: false, value: PhantomData }
            }
            Err(error) => {
                let _ = done.send(Err(error));
                RingRun { name, outcome, owner: None, over: false, value: PhantomData }
            }
        }
    }

    fn prepare(
        self,
        name: String,
        entry: EntryRef,
        function: &'static str,
        meta: Meta,
        (arguments, pins): (Vec<u8>, Pins),
    ) -> Result<(Arc<Owner>, (u32, Duration), Backoff)> {
        let runtime = Runtime::get()?;
        let config = runtime.config();
        let default = match config.processes {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            processes => processes,
        };
        let size = self.size.unwrap_or(default);
        if size == 0 || u32::try_from(size).is_err() {
            let problem = format!("a ring has at least one node, and this one would have {size}");
            return Err(Error::invalid("RingBuilder::size", problem));
        }
        codec::check_size(arguments.len(), config.max_message.as_u64(), || {
            format!("the arguments of `{function}`")
        })?;
        let ring_main = RingMain {
            entry,
            ring: name.clone(),
            rank: 0,
            initializer: self.initializer.transpose()?,
            timeout: self.timeout,
        };
        let owner = Owner {
            runtime,
            name,
            function,
            ring_main,
            arguments: arguments.into(),
            _pins: pins,
            meta,
            output: self.output.unwrap_or(config.output),
            state: Mutex::new(State::new(size)),
            pids: watch::Sender::new(vec![None; size]),
        };
        Ok((Arc::new(owner), self.intensity, self.backoff))
    }
}

/// Runs the ranks under a supervisor until the run is over and they have ended.
async fn supervise(
    owner: Arc<Owner>,
    (restarts, period): (u32, Duration),
    backoff: Backoff,
) -> Outcome {
    let runtime = owner.runtime;
    let size = owner.pids.borrow().len();
    let mut supervisor = Supervisor::builder(owner.name.clone())
        .strategy(Strategy::OneForAll)
        .intensity(restarts, period)
        .backoff(backoff);
    for rank in 0..size {
        let start = RankStart { owner: Arc::clone(&owner), rank };
        let spec = ChildSpec::new(format!("rank-{rank}"), start)
            .restart(Restart::Permanent)
            .shutdown(Shutdown::After(runtime.config().shutdown_timeout));
        supervisor = supervisor.child(spec);
    }
    match supervisor.start_on(runtime.arbiter()).await {
        Ok(supervisor) => {
            owner.supervised(supervisor.clone());
            let reason = supervisor.join().await?;
            owner.ended(reason)
        }
        Err(error) => owner.outcome().unwrap_or(Err(error)),
    }
}

/// A ring at work: a future of what its function has returned, by rank. Dropping it ends the ring.
#[must_use = "dropping it ends the ring: use `.await` or `.wait()`"]
pub struct RingRun<T> {
    name: String,
    outcome: oneshot::Receiver<Outcome>,
    owner: Option<Arc<Owner>>,
    over: bool,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> RingRun<T> {
    /// Blocks this thread until all nodes have ended.
    ///
    /// # Errors
    /// As [`RingBuilder::run`].
    pub fn wait(self) -> Result<Vec<T>> {
        block_on(self)
    }

    /// The ring's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of a rank's process; `None` if it has not started, or has ended.
    pub fn pid(&self, rank: usize) -> Option<u32> {
        self.owner.as_ref()?.pids.borrow().get(rank).copied().flatten()
    }

    /// Waits until all nodes are at work, and gives their process ids by rank.
    pub fn started(&self) -> Reply<Vec<u32>> {
        let owner = self.owner.clone();
        let name = self.name.clone();
        Reply::new(async move {
            let ended = || Error::Ring {
                ring: name,
                problem: "it has ended before all nodes were at work".into(),
            };
            let Some(owner) = owner else { return Err(ended()) };
            let mut pids = owner.pids.subscribe();
            let all =
                pids.wait_for(|pids| pids.is_empty() || pids.iter().all(Option::is_some)).await;
            match all {
                Ok(all) if !all.is_empty() => Ok(all.iter().copied().flatten().collect()),
                _ => Err(ended()),
            }
        })
    }

    /// Kills all ranks' processes (SIGKILL) and ends the run, without waiting.
    ///
    /// The handle then returns [`Error::Ring`], unless the run has already ended. A rank has no
    /// orderly end before its function returns, so there is no `stop`.
    pub fn kill(&self) {
        if let Some(owner) = &self.owner {
            let problem = "it was killed".to_string();
            owner.end(Err(Error::Ring { ring: owner.name.clone(), problem }));
        }
    }

    /// Kills one rank's process (SIGKILL), without waiting.
    ///
    /// The ring handles it as any death of a rank: it restarts all ranks from their last
    /// [checkpoint](RingNode::checkpoint), or the run ends with [`Error::RankDied`]. It does
    /// nothing if the rank has no process.
    pub fn kill_rank(&self, rank: usize) {
        if let Some(owner) = &self.owner {
            owner.kill(rank);
        }
    }
}

impl<T> Unpin for RingRun<T> {}

impl<T: DeserializeOwned> Future for RingRun<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<T>>> {
        let lost = |_| Err(Error::system("the ring could not be run", "fiber's thread ended"));
        let outcome = ready!(Pin::new(&mut self.outcome).poll(context)).unwrap_or_else(lost);
        self.over = true;
        Poll::Ready(
            outcome.and_then(|values| values.iter().map(|value| codec::decode(value)).collect()),
        )
    }
}

impl<T> Drop for RingRun<T> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take().filter(|_| !self.over) {
            let problem = "its handle was dropped".to_string();
            owner.end(Err(Error::Ring { ring: owner.name.clone(), problem }));
        }
    }
}

impl<T> fmt::Debug for RingRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingRun").field("name", &self.name).finish_non_exhaustive()
    }
}
