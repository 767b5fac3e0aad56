//! Counters of the scheduler, for people who look at a pool.

use std::time::{Duration, Instant};

use fiber_core::stats::{
    CallStats, Distribution, FunctionStats, PoolStats, RunningTask, TaskName, WorkerStats,
};

use super::Scheduler;
use super::call::Call;
use super::worker::Worker;
use crate::run::CallId;

/// A task is a straggler when it has run this many times as long as the median of its function.
const STRAGGLER_FACTOR: u32 = 10;
/// A task that has run for less than this is no straggler, because a busy machine holds up short
/// tasks.
const MIN_STRAGGLER: Duration = Duration::from_secs(1);
/// The number of tasks from which on a function has a usual time.
const MIN_TASKS: u64 = 5;

/// The experience with the tasks of a function.
#[derive(Default)]
pub(super) struct FunctionRecord {
    name: &'static str,
    /// Whether its tasks wait for others of the pool.
    pub(super) waits: bool,
    /// Whether a task had a large value.
    pub(super) is_large: bool,
    /// The mean time of a task in nanoseconds, with more weight on later ones; 0 if unknown.
    pub(super) nanos: f64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) times: Distribution,
}

impl FunctionRecord {
    pub(super) fn of(name: &'static str) -> FunctionRecord {
        FunctionRecord { name, ..FunctionRecord::default() }
    }

    /// Counts `tasks` attempts that took `busy` nanoseconds together.
    pub(super) fn count(&mut self, tasks: u64, busy: u64) {
        let sample = busy as f64 / tasks as f64;
        self.nanos =
            if self.nanos == 0.0 { sample.max(1.0) } else { 0.5 * self.nanos + 0.5 * sample };
        self.times.record(busy / tasks, tasks);
    }
}

/// The counts of a pool that belong to no function.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) retried: u64,
    pub(crate) redelivered: u64,
    pub(crate) abandoned: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    /// Bytes of inputs that a host had, and those of them that went to its own workers.
    pub(crate) near_bytes: u64,
    pub(crate) near_bytes_at_home: u64,
}

/// A task that a worker has reported to be running for a while.
#[derive(Clone, Copy)]
pub(super) struct LongRunning {
    pub(super) call: CallId,
    pub(super) index: u64,
    pub(super) since: Instant,
    /// Whether it has run much longer than usual.
    pub(super) straggler: bool,
}

/// A task that has just become a straggler.
pub(crate) struct Straggler<W> {
    pub(crate) worker: W,
    pub(crate) task: TaskName,
    pub(crate) ran: Duration,
    /// The median time of its function's tasks.
    pub(crate) usual: Duration,
}

/// The work of a worker so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct WorkerCounts {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// Nanoseconds of its tasks.
    pub(crate) busy: u64,
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Returns the number of tasks that have returned a value or failed.
    pub(crate) fn done(&self) -> u64 {
        self.functions.values().map(|function| function.done).sum()
    }

    /// Returns the tasks that have become stragglers since the last time.
    pub(crate) fn stragglers(&mut self, now: Instant) -> Vec<Straggler<W>> {
        let mut found = Vec::new();
        for (_, worker) in self.workers.iter_mut() {
            for task in worker.long_running.iter_mut().filter(|task| !task.straggler) {
                let ran = now.saturating_duration_since(task.since);
                let Some(call) = self.calls.get(&task.call) else { continue };
                let record = self.functions.get(&call.entry);
                let Some(record) = record.filter(|record| record.times.count() >= MIN_TASKS) else {
                    continue;
                };
                let usual = record.times.quantile(0.5);
                if ran >= MIN_STRAGGLER.max(usual.saturating_mul(STRAGGLER_FACTOR)) {
                    task.straggler = true;
                    let task = TaskName::new(task.call, call.function, task.index);
                    found.push(Straggler { worker: worker.handle.clone(), task, ran, usual });
                }
            }
        }
        found
    }

    /// Adds the state at the time `now` to a pool's statistics, except for its calls: these are
    /// returned with their callers. `of` makes the statistics of a worker with its threads.
    pub(crate) fn describe(
        &self,
        stats: &mut PoolStats,
        now: Instant,
        of: impl Fn(&W, u64) -> WorkerStats,
    ) -> Vec<(C, CallStats)> {
        let of_call = |(id, call): (&CallId, &Call<C>)| {
            let mut stats = CallStats::new(*id, call.function.to_string(), call.since);
            (stats.done, stats.waiting) = (call.done, call.ready_tasks + call.suspects.len());
            stats.pending = call.open - stats.waiting;
            stats.throttled = call.has_tasks() && !call.is_queued;
            (call.caller.clone(), stats)
        };
        let calls: Vec<_> = self.calls.iter().map(of_call).collect();
        let (tasks, counts) = (&mut stats.tasks, &self.counts);
        tasks.waiting = calls.iter().map(|(_, call)| call.waiting).sum();
        tasks.pending = calls.iter().map(|(_, call)| call.pending).sum();
        tasks.done = self.done();
        tasks.failed = self.functions.values().map(|function| function.failed).sum();
        (tasks.retried, tasks.redelivered) = (counts.retried, counts.redelivered);
        tasks.abandoned = counts.abandoned;
        (stats.bytes_out, stats.bytes_in) = (counts.bytes_out, counts.bytes_in);
        stats.near_bytes = counts.near_bytes;
        stats.near_bytes_at_home = counts.near_bytes_at_home;
        stats.idle = self.idle;
        stats.functions = self.function_stats();
        let of_worker =
            |worker: &Worker<W>| self.worker_stats(worker, now, of(&worker.handle, worker.threads));
        stats.workers = self.workers.values().map(of_worker).collect();
        calls
    }

    fn function_stats(&self) -> Vec<FunctionStats> {
        let mut functions: Vec<FunctionStats> = Vec::with_capacity(self.functions.len());
        for record in self.functions.values() {
            let mut stats = FunctionStats::new(record.name.to_string());
            (stats.done, stats.failed) = (record.done, record.failed);
            stats.times = record.times.clone();
            let place = functions.partition_point(|before| before.function < stats.function);
            functions.insert(place, stats);
        }
        functions
    }

    fn worker_stats(
        &self,
        worker: &Worker<W>,
        now: Instant,
        mut stats: WorkerStats,
    ) -> WorkerStats {
        let function = |call: CallId| self.calls.get(&call).map(|call| call.function.to_string());
        let running = |task: &LongRunning| {
            let ran = now.saturating_duration_since(task.since);
            let name = function(task.call)?;
            let mut running = RunningTask::new(task.call, name, task.index, ran);
            running.straggler = task.straggler;
            Some(running)
        };
        stats.pending = worker.pending_tasks;
        stats.function = worker.pending.iter().next().and_then(|run| function(run.call));
        stats.running = worker.long_running.iter().filter_map(running).collect();
        (stats.done, stats.failed) = (worker.counts.done, worker.counts.failed);
        stats.busy = Duration::from_nanos(worker.counts.busy);
        stats.retiring = worker.retirement().is_some();
        stats
    }
}
