//! The options of a ring before its run.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Error, Meta, Result};
use fiber_journal::Journal;
use fiber_values::codec::EncodedValue;
use fiber_values::entry::{Entry, MethodFn};
use fiber_values::transfer::KeepAlive;
use fiber_values::{
    AsResult, AsValue, OutputKind, Portable, TaskOutput, TryOutput, assert_captures_nothing, codec,
    transfer,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::coordinator::{Coordinator, Run, RunState};
use super::function::RingFunction;
use super::rank::RingMain;
use super::recorded::{Identity, Progress, RecordedRun};
use super::run::{PreparedRun, RingRun};
use super::task::RingEntry;
use fiber_runtime::durable::{DurableState, ObjectKind};
use fiber_runtime::runtime::{HostGroup, Runtime};
use fiber_supervisor::options::{ProcessOptions, builder_options};
use fiber_supervisor::process::Initializer;
use fiber_supervisor::supervisor::{RestartLimits, Strategy, Supervisor};

/// A builder that configures and runs a [`Ring`](crate::Ring).
/// [`Ring::builder`](crate::Ring::builder) returns one.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::time::Duration;
///
/// use fiber::config::OutputMode;
/// use fiber::supervisor::Backoff;
/// use fiber::{Ring, RingNode};
///
/// let ring = Ring::builder()
///     .name("ranks")
///     .size(2)
///     .output(OutputMode::Prefix)
///     .initializer(|level: String| println!("this rank logs {level}"), "errors".to_string())
///     .timeout(Duration::from_secs(10))
///     .intensity(1, Duration::from_secs(60))
///     .backoff(Backoff::none());
/// assert_eq!(ring.run(|node: RingNode| node.rank(), ()).wait()?, [0, 1]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `run` or `try_run` is called"]
pub struct RingBuilder {
    options: ProcessOptions,
    size: Option<usize>,
    initializer: Option<Result<Initializer>>,
    timeout: Duration,
    limits: RestartLimits,
    journal: Option<Journal>,
}

impl RingBuilder {
    pub(super) fn new() -> RingBuilder {
        RingBuilder {
            options: ProcessOptions::default(),
            size: None,
            initializer: None,
            timeout: Duration::from_secs(300),
            limits: RestartLimits::default(),
            journal: None,
        }
    }

    builder_options! {
        /// The default is `ring-1` and so on.
        name => options.name;
        /// They take precedence over those in the function's `#[fiber::meta]`.
        meta => options.meta;
        output => options.output;
        /// Ranks of one job exchange values through shared memory.
        processes_per_job => options.processes_per_job;
        /// If it panics, the run ends with an error.
        initializer => initializer;
        try_initializer => initializer;
        /// One restart starts all nodes again. When another one is needed, the run ends with
        /// [`Error::RankDied`].
        intensity => limits.intensity;
        backoff => limits.backoff;
    }

    /// Sets the number of nodes, from 1 to 100,000. [`RingBuilder`] has an example.
    ///
    /// The default is `processes` of the [configuration](fiber_core::Config), and one for each
    /// processor core where that is 0.
    pub fn size(mut self, size: usize) -> RingBuilder {
        self.size = Some(size);
        self
    }

    /// Sets how long a call of a node waits for other ranks without progress. [`RingBuilder`] has
    /// an example.
    ///
    /// After that the run ends with an error that says what each rank is doing. The default is 5
    /// minutes. [`RingNode::set_timeout`](crate::RingNode::set_timeout) changes it for one rank.
    pub fn timeout(mut self, timeout: Duration) -> RingBuilder {
        self.timeout = timeout;
        self
    }

    /// Records checkpoints and results in a journal, so that a program that is started again
    /// continues the run.
    ///
    /// The n-th [checkpoint](crate::RingNode::checkpoint) counts when that of each rank is on the
    /// disk. A program that is started again gives each rank its state in the last one that counts,
    /// or the results, without starting a process, if the run is over. Failures are not recorded.
    ///
    /// The ring's [name](Self::name), which has to be set, and the journal's version identify the
    /// run. Several runs of one name are numbered in the order in which the program makes them. The
    /// size, the function and the arguments must be the same as before; otherwise the run ends with
    /// [`Error::Invalid`], and nothing is lost.
    ///
    /// Only the program's first process can run a durable ring, and its arguments can't contain
    /// handles, which name objects of one run of the program.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let journal = fiber::Journal::at(directory.path());
    /// use fiber::{Ring, RingNode};
    ///
    /// fn count(mut node: RingNode, steps: u64) -> fiber::Result<u64> {
    ///     let first = node.restored()?.unwrap_or(0);
    ///     for step in first..steps {
    ///         node.checkpoint(&(step + 1))?;
    ///     }
    ///     Ok(steps)
    /// }
    ///
    /// let ring = Ring::builder().name("count").size(2).durable(journal);
    /// assert_eq!(ring.try_run(count, 10).wait()?, [10, 10]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn durable(mut self, journal: impl Into<Journal>) -> RingBuilder {
        self.journal = Some(journal.into());
        self
    }

    /// Starts the nodes, which call `function` with their [`RingNode`](crate::RingNode) and `args`.
    /// [`RingBuilder`] has an example.
    ///
    /// `args` is one value, a tuple for a function with several more parameters, or `()`. It is
    /// encoded once, and a copy goes to each rank. The call returns at once. The handle is a future
    /// of the values that the function returns, by rank.
    ///
    /// # Errors
    /// The handle returns them all: [`Error::RankDied`] if a node died and the ring could not be
    /// restarted; [`Error::Ring`] if the ranks made different calls or timed out; [`Error::Task`]
    /// if the function panicked (its `index` is the rank); [`Error::Start`] if a node could not
    /// start; [`Error::Invalid`] if the size is 0 or the ring can't be durable; [`Error::Journal`];
    /// [`Error::Encode`] and [`Error::TooLarge`] for the arguments; [`Error::NotInitialized`].
    #[track_caller]
    pub fn run<F, A, M, N>(
        self,
        function: F,
        args: A,
    ) -> RingRun<<F::Output as TaskOutput<N>>::Value>
    where
        F: RingFunction<A, M, Output: TaskOutput<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        self.start::<F, A, M, AsValue<N>>(function, &args)
    }

    /// Works as [`run`](RingBuilder::run), for a function that returns a `Result` whose error
    /// implements `Display`. An `Err` of any rank ends the run with [`Error::Task`], and the other
    /// ranks are killed.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Error, Ring, RingNode};
    ///
    /// fn check(node: RingNode) -> Result<usize, String> {
    ///     if node.rank() == 1 { Err("no disk".into()) } else { Ok(node.rank()) }
    /// }
    ///
    /// let run = Ring::builder().size(2).try_run(check, ());
    /// assert!(matches!(run.wait(), Err(Error::Task { index: 1, .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn try_run<F, A, M, N>(
        self,
        function: F,
        args: A,
    ) -> RingRun<<F::Output as TryOutput<N>>::Value>
    where
        F: RingFunction<A, M, Output: TryOutput<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        self.start::<F, A, M, AsResult<N>>(function, &args)
    }

    #[track_caller]
    fn start<F, A, M, K>(self, _: F, args: &A) -> RingRun<K::Value>
    where
        F: RingFunction<A, M>,
        A: Portable,
        K: OutputKind<F::Output>,
    {
        let name = self.options.name_or_numbered("ring");
        let entry = RingEntry::<F, A, M, K>::ENTRY;
        entry.passed_at(Location::caller());
        let meta = self.options.meta.or(Meta::of::<F>());
        let (arguments, keep_alive) = transfer::repeatable(|| EncodedValue::new(args));
        let compared = self.journal.as_ref().map(|_| Identity::encode(args)).transpose();
        let prepared = arguments.and_then(|arguments| {
            self.prepare(name.clone(), entry, meta, (arguments, keep_alive), compared?)
        });
        RingRun::start(name, prepared)
    }

    fn prepare(
        self,
        name: String,
        entry: &'static Entry<MethodFn>,
        meta: Meta,
        (arguments, keep_alive): (EncodedValue, KeepAlive),
        compared: Option<EncodedValue>,
    ) -> Result<PreparedRun> {
        let runtime = Runtime::get()?;
        let config = runtime.config();
        let function = entry.display_name();
        let size = self.size.unwrap_or_else(|| runtime.default_processes());
        if size == 0 {
            return Err(Error::invalid("RingBuilder::size", "a ring needs at least 1 node"));
        }
        Runtime::check_processes("RingBuilder::size", size)?;
        codec::check_size(arguments.size(), config.max_message.as_u64(), || {
            format!("the arguments of `{function}`")
        })?;
        let (mut recorded, mut progress) = (None, Progress::None);
        if let (Some(journal), Some(arguments)) = (&self.journal, &compared) {
            let given_name = self.options.name.as_deref();
            let state = DurableState::open_next(runtime, journal, ObjectKind::Ring, given_name)?;
            let (run, earlier) =
                RecordedRun::open(state, &Identity::new(entry.name(), size, arguments))?;
            (recorded, progress) = (Some(run), earlier);
        }
        let journal = recorded.as_ref().map(RecordedRun::journal);
        let run = match progress {
            Progress::Finished(values) => return Ok(PreparedRun::Finished(values, journal)),
            Progress::Checkpoint(number, states) => RunState::restored(number, states),
            Progress::None => RunState::new(size),
        };
        let main = RingMain {
            entry: entry.reference(),
            ring: name.clone(),
            rank: 0,
            initializer: self.initializer.transpose()?,
            timeout: self.timeout,
            journal,
        };
        let per_job = self.options.processes_per_job(config)?;
        let coordinator = Coordinator {
            runtime,
            hosts: HostGroup::new(name.clone(), per_job.min(size)),
            name,
            function,
            main,
            arguments,
            _keep_alive: keep_alive,
            meta,
            output: self.options.output(config),
            recorded,
            run: Mutex::new(Run::new(size, run)),
            pids: watch::Sender::new(vec![None; size]),
        };
        let supervisor = Supervisor::builder(&coordinator.name)
            .strategy(Strategy::OneForAll)
            .limits(self.limits);
        Ok(PreparedRun::Start(Arc::new(coordinator), supervisor))
    }
}
