//! What a pool is to be.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fiber_core::{
    Error, Function, Meta, Output, OutputMode, Portable, Result, Tries, TryOutput, Values,
    captures_nothing,
};

use super::Pool;
use super::controller::{self, Controller};
use super::shared::Shared;
use super::worker::WorkerRoot;
use crate::process::Initializer;
use crate::reply::Reply;
use crate::runtime::Runtime;

/// What a pool is to be; [`Pool::builder`] makes one.
#[derive(Clone, Debug)]
#[must_use]
pub struct PoolBuilder {
    name: Option<String>,
    processes: Option<usize>,
    scale: Option<RangeInclusive<usize>>,
    threads: usize,
    meta: Meta,
    initializer: Option<Result<Initializer>>,
    tasks_per_worker: Option<u64>,
    output: Option<OutputMode>,
}

impl PoolBuilder {
    pub(super) fn new() -> PoolBuilder {
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

    /// Asks for resources for each worker, over what `#[fiber::meta]` of the first task's function
    /// asks.
    pub fn meta(mut self, meta: Meta) -> PoolBuilder {
        self.meta = meta;
        self
    }

    /// Has each worker call `function` before its first task. If that fails, the worker counts as
    /// not started.
    pub fn initializer<F, A, M, N>(mut self, function: F, args: A) -> PoolBuilder
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

    /// As [`initializer`](PoolBuilder::initializer), for a function that returns a `Result` whose
    /// error can be displayed.
    pub fn try_initializer<F, A, M, N>(mut self, function: F, args: A) -> PoolBuilder
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

    /// Makes the pool. Its workers start with the first call, whose function's `#[fiber::meta]`
    /// they follow.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that can't be; what [`Config`](fiber_core::Config) finds
    /// wrong; [`Error::NotInitialised`].
    pub fn build(self) -> Result<Pool> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let runtime = Runtime::get()?;
        let config = runtime.config();
        let default = match config.processes {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let bounds = match (self.scale, self.processes) {
            (Some(bounds), _) => bounds,
            (None, count) => count.unwrap_or(default)..=count.unwrap_or(default),
        };
        let invalid =
            |problem: &str| Err(Error::Invalid { what: "Pool::builder", problem: problem.into() });
        if bounds.is_empty() || *bounds.start() == 0 {
            return invalid(
                "a pool needs at least 1 process: set `processes` to 1 or more, or leave it out for one a core",
            );
        }
        if self.threads == 0 || self.tasks_per_worker == Some(0) {
            return invalid("`threads_per_worker` and `tasks_per_worker` must be at least 1");
        }
        let name =
            self.name.unwrap_or_else(|| format!("pool-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let max_message = config.max_message.as_u64() as usize;
        let root = WorkerRoot {
            threads: self.threads as u64,
            initializer: self.initializer.transpose()?,
            max_message: max_message as u64,
        };
        let plan = controller::Plan {
            meta: self.meta,
            output: self.output.unwrap_or(config.output),
            root,
            quota: self.tasks_per_worker,
            bounds,
        };
        let shared = Arc::new_cyclic(|weak| {
            let controller = controller::start(
                runtime,
                Controller::new(runtime, name.clone(), weak.clone(), plan),
            );
            Shared::new(runtime, name, max_message, controller)
        });
        Ok(Pool::of(shared))
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
