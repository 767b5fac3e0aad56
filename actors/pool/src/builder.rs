//! The configuration of a pool before it is made.

use std::ops::RangeInclusive;
use std::sync::Arc;

use fiber_core::{Error, Meta, Result};

use super::Pool;
use super::controller;
use super::scheduling::SharedLife;
use super::state::PoolState;
use super::worker::WorkerMain;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::{HostGroup, Runtime};
use fiber_runtime::sources::Sources;
use fiber_supervisor::options::{ProcessOptions, builder_options};
use fiber_supervisor::process::Initializer;

/// A builder that configures a [`Pool`]. [`Pool::builder`] returns one.
///
/// [`build`](PoolBuilder::build) makes the pool, whose workers then start with the first call.
/// [`start`](PoolBuilder::start) starts the workers at once.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::config::OutputMode;
/// use fiber::{Meta, Pool};
///
/// let pool = Pool::builder()
///     .name("squares")
///     .processes(2)
///     .threads_per_worker(4)
///     .tasks_per_worker(10_000)
///     .meta(Meta::new().cpu(1.0))
///     .output(OutputMode::Prefix)
///     .start()
///     .wait()?;
/// assert_eq!(pool.map(|x: u64| x * x, 0..4).wait()?, [0, 1, 4, 9]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` or `start` is called"]
pub struct PoolBuilder {
    options: ProcessOptions,
    processes: Option<usize>,
    scale: Option<RangeInclusive<usize>>,
    threads: usize,
    initializer: Option<Result<Initializer>>,
    tasks_per_worker: Option<u64>,
    #[cfg(feature = "simulation")]
    simulated: bool,
}

impl PoolBuilder {
    pub(super) fn new() -> PoolBuilder {
        PoolBuilder {
            options: ProcessOptions::default(),
            processes: None,
            scale: None,
            threads: 1,
            initializer: None,
            tasks_per_worker: None,
            #[cfg(feature = "simulation")]
            simulated: false,
        }
    }

    builder_options! {
        /// The default is `pool-1` and so on. The [example](PoolBuilder#examples) shows it.
        name => options.name;
        /// They take precedence over those in `#[fiber::meta]` of the function whose call starts
        /// the workers. The [example](PoolBuilder#examples) shows it.
        meta => options.meta;
        /// The [example](PoolBuilder#examples) shows it.
        output => options.output;
        /// Every replacement starts in the same job, in milliseconds.
        processes_per_job => options.processes_per_job;
        /// Each worker calls it once, also one that replaces another, within `start_timeout` of the
        /// [configuration](fiber_core::Config). A worker whose initializer panics counts as not
        /// started: the pool tries again while it has other workers, and ends with
        /// [`Error::PoolEnded`] if the first start of every worker fails.
        ///
        /// # Examples
        /// ```
        /// # fiber::init();
        /// use std::sync::OnceLock;
        ///
        /// static TABLE: OnceLock<Vec<u64>> = OnceLock::new();
        ///
        /// fn prepare(length: u64) {
        ///     TABLE.get_or_init(|| (0..length).map(|x| x * x).collect());
        /// }
        ///
        /// let pool = fiber::Pool::builder().processes(2).initializer(prepare, 100).build()?;
        /// assert_eq!(pool.apply(|x: usize| TABLE.get().unwrap()[x], 9).wait()?, 81);
        /// # Ok::<(), fiber::Error>(())
        /// ```
        initializer => initializer;
        /// # Examples
        /// ```
        /// # fiber::init();
        /// let enter = |directory: String| std::env::set_current_dir(directory);
        /// let builder = fiber::Pool::builder().processes(1);
        /// let pool = builder.try_initializer(enter, "/no/such/directory".to_string()).build()?;
        /// let error = pool.apply(|| 7, ()).wait().unwrap_err();
        /// assert!(error.to_string().contains("No such file"));
        /// # Ok::<(), fiber::Error>(())
        /// ```
        try_initializer => initializer;
    }

    /// Sets the number of worker processes, from 1 to 100,000.
    ///
    /// The default is `processes` of the [configuration](fiber_core::Config), and one for each
    /// processor core where that is 0. The [example](PoolBuilder#examples) shows it.
    pub fn processes(mut self, count: usize) -> PoolBuilder {
        self.processes = Some(count);
        self
    }

    /// Scales the number of worker processes with the number of tasks, within these bounds.
    ///
    /// The pool looks at its tasks every 100 ms. It adds workers at once, each of which costs the
    /// start of a process, and removes workers after 2 s in which fewer were enough; these finish
    /// their pending tasks. The lower bound is at least 1. The bounds take precedence over
    /// [`processes`](PoolBuilder::processes).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::builder().scale_between(1..=4).build()?;
    /// assert_eq!(pool.apply(|| 7, ()).wait()?, 7);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn scale_between(mut self, bounds: RangeInclusive<usize>) -> PoolBuilder {
        self.scale = Some(bounds);
        self
    }

    /// Sets how many tasks a worker runs at the same time, each on a thread of its own. The default
    /// is 1, which is also the least.
    ///
    /// The threads share the memory of their process, and its death: all tasks that were pending
    /// there run again. The [example](PoolBuilder#examples) shows it.
    pub fn threads_per_worker(mut self, count: usize) -> PoolBuilder {
        self.threads = count;
        self
    }

    /// Replaces a worker after it has run this many tasks, at least 1. The default is never.
    ///
    /// The replacement costs the start of a process, which begins when the worker has ended. The
    /// [example](PoolBuilder#examples) shows it.
    pub fn tasks_per_worker(mut self, count: u64) -> PoolBuilder {
        self.tasks_per_worker = Some(count);
        self
    }

    /// Lets the workers be threads of the processes in which `processes_per_job` of them would be:
    /// a session with more workers than one machine has room for, to measure and to test its
    /// parent. Such workers have no children, actors or shared objects.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn simulated(mut self) -> PoolBuilder {
        self.simulated = true;
        self
    }

    /// Makes the pool and returns at once.
    ///
    /// The workers start with the first call. They request the resources in `#[fiber::meta]` of
    /// that call's function.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a number is out of its bounds; [`Error::Encode`] if the arguments of
    /// the initializer can't be serialized; [`Error::NotInitialized`]; the errors of a wrong
    /// [configuration](fiber_core::Config).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::builder().processes(2).build()?;
    /// assert_eq!(pool.ready_workers(), 0);
    /// assert_eq!(pool.apply(|| 7, ()).wait()?, 7);
    /// let error = fiber::Pool::builder().processes(0).build().unwrap_err();
    /// assert!(matches!(error, fiber::Error::Invalid { .. }));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn build(self) -> Result<Pool> {
        let runtime = Runtime::get()?;
        let config = runtime.config();
        let bounds = self.scale.clone().unwrap_or_else(|| {
            let count = self.processes.unwrap_or_else(|| runtime.default_processes());
            count..=count
        });
        self.check(&bounds)?;
        let per_job = self.options.processes_per_job(config)?;
        let name = self.options.name_or_numbered("pool");
        let max_message = config.max_message.as_u64() as usize;
        let threads = self.threads as u64;
        let worker_main = WorkerMain {
            pool: name.clone(),
            name: String::new(),
            threads,
            initializer: self.initializer.transpose()?,
            max_message: max_message as u64,
        };
        // A job requests no more than the pool can use.
        let most = *bounds.end();
        let group = HostGroup::new;
        #[cfg(feature = "simulation")]
        let group = if self.simulated { HostGroup::simulated } else { group };
        let spec = controller::PoolSpec {
            output: self.options.output(config),
            meta: self.options.meta,
            worker_main,
            hosts: group(name.clone(), most.min(per_job)),
        };
        let life = SharedLife::new(bounds, threads, self.tasks_per_worker);
        let state = Arc::new_cyclic(|weak| {
            let controller = controller::start(runtime, name.clone(), weak.clone(), spec);
            PoolState::new(weak.clone(), runtime, name, max_message, life, Some(controller))
        });
        runtime.part::<Sources>().register(&state);
        runtime.on_drain(&state);
        Ok(Pool::of(state))
    }

    fn check(&self, bounds: &RangeInclusive<usize>) -> Result<()> {
        let invalid = |method, problem: &str| Err(Error::invalid(method, problem));
        if self.scale.is_none() {
            Runtime::check_processes("PoolBuilder::processes", *bounds.end())?;
        }
        match &self.scale {
            None if *bounds.start() == 0 => invalid(
                "PoolBuilder::processes",
                "a pool needs at least 1 process: set 1 or more, or leave it out for one a core",
            ),
            Some(bounds) if bounds.is_empty() || *bounds.start() == 0 => invalid(
                "PoolBuilder::scale_between",
                &format!(
                    "the bounds are {bounds:?}: the first must be at least 1, and the last no less"
                ),
            ),
            _ if self.threads == 0 => {
                invalid("PoolBuilder::threads_per_worker", "a worker needs at least 1 thread")
            }
            _ if self.tasks_per_worker == Some(0) => {
                invalid("PoolBuilder::tasks_per_worker", "a worker runs at least 1 task")
            }
            _ => Ok(()),
        }
    }

    /// Makes the pool and starts its workers. The reply is ready when the first worker is.
    ///
    /// [`Pool::wait_until_ready`] waits for the others. Dropping the reply before it is ready kills
    /// the workers.
    ///
    /// # Errors
    /// As [`build`](PoolBuilder::build); [`Error::PoolEnded`] if no worker can be started.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::builder().processes(2).start().wait()?;
    /// assert!(pool.ready_workers() > 0);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn start(self) -> Reply<Pool> {
        let pool = self.build();
        if let Ok(pool) = &pool {
            pool.state().ensure_started(Meta::new());
        }
        Reply::new(async move {
            let pool = pool?;
            pool.state().when_ready(|workers| workers.ready > 0).await?;
            Ok(pool)
        })
    }
}
