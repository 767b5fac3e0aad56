//! The statistics of a pool.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Distribution, units};
use crate::id::ProcessId;

/// A pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolStats {
    /// The process that made it.
    pub process: ProcessId,
    /// Its name.
    pub name: String,
    /// Whether it takes calls.
    pub phase: PoolPhase,
    /// The number of workers that it is to have.
    pub wanted: usize,
    /// Workers that are ready.
    pub ready: usize,
    /// Ready workers without tasks.
    pub idle: usize,
    /// Its tasks by state.
    pub tasks: TaskCounts,
    /// Completed tasks in a second: the mean of the last 5 seconds.
    pub rate: f64,
    /// Completed tasks in each of the last 60 seconds, oldest first.
    pub history: Vec<u64>,
    /// Workers that have died.
    pub deaths: u64,
    /// Bytes of arguments that were sent to workers, and of outcomes that came back. Values in
    /// shared memory count.
    pub bytes_out: u64,
    /// See `bytes_out`.
    pub bytes_in: u64,
    /// Bytes of large inputs that a host had, for the tasks that were handed out.
    #[serde(default)]
    pub near_bytes: u64,
    /// How many of them went to workers of that host.
    #[serde(default)]
    pub near_bytes_at_home: u64,
    /// Calls that are not complete.
    pub calls: Vec<CallStats>,
    /// The functions that its tasks have run.
    pub functions: Vec<FunctionStats>,
    /// Its ready workers.
    pub workers: Vec<WorkerStats>,
}

impl PoolStats {
    #[doc(hidden)]
    pub fn new(process: ProcessId, name: String, phase: PoolPhase) -> PoolStats {
        PoolStats {
            process,
            name,
            phase,
            wanted: 0,
            ready: 0,
            idle: 0,
            tasks: TaskCounts::default(),
            rate: 0.0,
            history: Vec::new(),
            deaths: 0,
            bytes_out: 0,
            bytes_in: 0,
            near_bytes: 0,
            near_bytes_at_home: 0,
            calls: Vec::new(),
            functions: Vec::new(),
            workers: Vec::new(),
        }
    }

    /// Returns the tasks that have run for a while, longest first, each with its worker's name.
    pub fn running(&self) -> Vec<(&WorkerStats, &RunningTask)> {
        let mut running: Vec<_> = self
            .workers
            .iter()
            .flat_map(|worker| worker.running.iter().map(move |task| (worker, task)))
            .collect();
        running.sort_by_key(|(_, task)| std::cmp::Reverse(task.ran));
        running
    }
}

/// Whether a pool takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PoolPhase {
    /// It takes calls.
    Open,
    /// It takes no more calls, and completes those that it has.
    Closed,
    /// It has ended.
    Ended,
}

/// The number of tasks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskCounts {
    /// Submitted, and assigned to no worker.
    pub waiting: u64,
    /// Not submitted, because they wait for the values of others.
    #[serde(default)]
    pub held: u64,
    /// Assigned to a worker, without an outcome.
    pub pending: u64,
    /// Returned a value or failed.
    pub done: u64,
    /// Failed: panicked or returned an error. `done` counts them too.
    pub failed: u64,
    /// Run again because of a failure (`retries`).
    pub retried: u64,
    /// Assigned again because their worker died.
    pub redelivered: u64,
    /// Given up because too many of their workers died, or they ran past their timeout.
    pub abandoned: u64,
    /// Did not run, because a journal had their outcomes. `done` does not count them.
    #[serde(default)]
    pub recorded: u64,
}

/// A call of a pool that is not complete.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallStats {
    /// Its number in the process that made it.
    pub id: u64,
    /// The task function.
    pub function: String,
    /// When it began.
    #[serde(with = "units::time")]
    pub since: SystemTime,
    /// The number of its tasks, once it is known.
    pub total: Option<u64>,
    /// Tasks that are complete, with those that a journal had the outcomes of.
    pub done: u64,
    /// Tasks that were submitted, and are assigned to no worker.
    pub waiting: u64,
    /// Tasks that wait for the values of others.
    #[serde(default)]
    pub held: u64,
    /// The functions whose values the next 100 of these tasks wait for, those of most values first:
    /// at most 8.
    #[serde(default)]
    pub waits_for: Vec<String>,
    /// Tasks that are assigned to a worker.
    pub pending: u64,
    /// Whether it waits until its caller takes results.
    pub throttled: bool,
}

impl CallStats {
    #[doc(hidden)]
    pub fn new(id: u64, function: String, since: SystemTime) -> CallStats {
        CallStats {
            id,
            function,
            since,
            total: None,
            done: 0,
            waiting: 0,
            held: 0,
            waits_for: Vec::new(),
            pending: 0,
            throttled: false,
        }
    }
}

/// A task function in a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FunctionStats {
    /// Its path: `simulate::step`.
    pub function: String,
    /// Tasks that returned a value or failed.
    pub done: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// The times that tasks took. Short tasks of one message count with their mean.
    pub times: Distribution,
}

impl FunctionStats {
    #[doc(hidden)]
    pub fn new(function: String) -> FunctionStats {
        FunctionStats { function, done: 0, failed: 0, times: Distribution::default() }
    }
}

/// A ready worker of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Its process.
    pub process: ProcessId,
    /// Its name in the pool: `worker-1`.
    pub name: String,
    /// Threads that run tasks.
    pub threads: u64,
    /// Tasks that are assigned to it.
    pub pending: u64,
    /// The function of the first of them.
    pub function: Option<String>,
    /// Tasks that have run for at least 5 ms.
    pub running: Vec<RunningTask>,
    /// Tasks that it has completed.
    pub done: u64,
    /// Tasks that have failed in it.
    pub failed: u64,
    /// The time that its tasks took, added up over its threads.
    #[serde(with = "units::duration")]
    pub busy: Duration,
    /// Whether it stops when its tasks are complete.
    pub retiring: bool,
}

impl WorkerStats {
    #[doc(hidden)]
    pub fn new(process: ProcessId, name: String, threads: u64) -> WorkerStats {
        WorkerStats {
            process,
            name,
            threads,
            pending: 0,
            function: None,
            running: Vec::new(),
            done: 0,
            failed: 0,
            busy: Duration::ZERO,
            retiring: false,
        }
    }
}

/// A task that has run for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunningTask {
    /// The number of its call.
    pub call: u64,
    /// Its function.
    pub function: String,
    /// The index of its argument in the call.
    pub index: u64,
    /// For how long it has run.
    #[serde(with = "units::duration")]
    pub ran: Duration,
    /// Whether it has run ten times as long as its function's tasks usually do.
    pub straggler: bool,
}

impl RunningTask {
    #[doc(hidden)]
    pub fn new(call: u64, function: String, index: u64, ran: Duration) -> RunningTask {
        RunningTask { call, function, index, ran, straggler: false }
    }
}
