//! The workers of a pool, one by one.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use fiber_core::ProcessId;
use fiber_core::stats::{PoolStats, ProcessRole, ProcessState, Report, RunningTask, WorkerStats};
use serde::Serialize;

use super::format::{span, whole};
use super::table::{self, Filter, Order};

/// The state of a worker. One that is more noticeable is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Slow,
    Long,
    Start,
    Drain,
    Short,
    Idle,
}

/// All states in their order, each with its name and what it says of a worker.
pub(crate) const STATES: [(State, &str, &str); 6] = [
    (State::Slow, "slow", "runs a straggler"),
    (State::Long, "long", "runs a task of 5 ms or more"),
    (State::Start, "start", "starts, or waits for a place"),
    (State::Drain, "drain", "stops after its tasks"),
    (State::Short, "short", "runs short tasks"),
    (State::Idle, "idle", "has no task"),
];

/// A worker of a pool.
#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    #[serde(serialize_with = "table::id")]
    pub(crate) process: ProcessId,
    /// Its name in the pool.
    pub(crate) name: String,
    pub(crate) state: State,
    /// What it does, and what it has done.
    lines: [String; 2],
    /// The tasks that have run for a while.
    running: Vec<RunningTask>,
    /// The function of its short tasks, or why it has none.
    #[serde(skip)]
    pub(crate) what: String,
    /// The numbers by which it is sorted: busy time, tasks that are done, and that have failed.
    #[serde(skip)]
    numbers: (Duration, u64, u64),
}

impl Worker {
    /// Returns the task that has run for longest, of those that have run for a while.
    pub(crate) fn task(&self) -> Option<&RunningTask> {
        longest(&self.running)
    }

    fn ready(worker: &WorkerStats) -> Worker {
        let function = worker.function.clone().unwrap_or_default();
        let (state, what) = match worker {
            worker if worker.running.iter().any(|task| task.straggler) => (State::Slow, function),
            worker if worker.retiring => (State::Drain, "stops after its tasks".into()),
            worker if !worker.running.is_empty() => (State::Long, function),
            worker if worker.pending > 0 => (State::Short, function),
            _ => (State::Idle, String::new()),
        };
        let line = match (longest(&worker.running), state) {
            (Some(task), _) => format!("{} {} #{}", span(task.ran), task.function, task.index),
            (None, State::Short) => format!("{what}, {} pending", whole(worker.pending)),
            (None, State::Idle) => "idle".into(),
            (None, _) => what.clone(),
        };
        Worker {
            process: worker.process,
            name: worker.name.clone(),
            state,
            lines: [line, format!("{} done", whole(worker.done))],
            running: worker.running.clone(),
            what,
            numbers: (worker.busy, worker.done, worker.failed),
        }
    }
}

fn longest(tasks: &[RunningTask]) -> Option<&RunningTask> {
    tasks.iter().max_by_key(|task| task.ran)
}

/// Returns the workers of a pool by name, with those that are not ready yet.
pub(super) fn of_pool(report: &Report, pool: &PoolStats) -> Vec<Worker> {
    let ready: HashSet<ProcessId> = pool.workers.iter().map(|worker| worker.process).collect();
    let starting = report.processes.iter().filter_map(|process| {
        let (above, name) = process.name.rsplit_once('/')?;
        let is_own = process.role == ProcessRole::Worker
            && process.parent == Some(pool.process)
            && above.rsplit('/').next() == Some(pool.name.as_str());
        let starts = process.state != ProcessState::Running && !ready.contains(&process.id);
        (is_own && starts).then(|| Worker {
            process: process.id,
            name: name.into(),
            state: State::Start,
            lines: [process.state.to_string(), String::new()],
            running: Vec::new(),
            what: process.state.to_string(),
            numbers: (Duration::ZERO, 0, 0),
        })
    });
    let mut workers: Vec<Worker> = pool.workers.iter().map(Worker::ready).chain(starting).collect();
    // `worker-2` comes before `worker-10`.
    workers.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    workers
}

/// Returns the workers whose names or functions pass the filter, sorted.
pub(crate) fn listed<'a>(workers: &'a [Worker], filter: &Filter, order: Order) -> Vec<&'a Worker> {
    let passes = |worker: &&Worker| {
        let function = worker.task().map_or(&worker.what, |task| &task.function);
        filter.passes(&worker.name) || filter.passes(function)
    };
    let mut listed: Vec<&Worker> = workers.iter().filter(passes).collect();
    let ran = |worker: &Worker| worker.task().map(|task| task.ran);
    match order {
        Order::Natural => {}
        Order::Time => listed.sort_by_key(|worker| Reverse((ran(worker), worker.numbers.0))),
        Order::Amount => listed.sort_by_key(|worker| Reverse(worker.numbers.1)),
        Order::Failures => listed.sort_by_key(|worker| Reverse(worker.numbers.2)),
    }
    listed
}

/// Returns how many of these workers have each state, with the name of the state.
pub(crate) fn counts(workers: &[&Worker]) -> [(State, &'static str, usize); 6] {
    let count = |state| workers.iter().filter(|worker| worker.state == state).count();
    STATES.map(|(state, name, _)| (state, name, count(state)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::stats;

    #[test]
    fn workers_are_filtered_and_sorted() {
        let report = stats("program", 16).report;
        let workers = of_pool(&report, &report.pools[0]);
        let names = |filter: &str, order| -> Vec<String> {
            let listed = listed(&workers, &Filter(filter.into()), order);
            listed.into_iter().map(|worker| worker.name.clone()).collect()
        };
        assert_eq!(names("WORKER-1", Order::Natural).len(), 8);
        assert_eq!(names("STEP", Order::Natural).len(), 10);
        assert_eq!(names("", Order::Time)[..2], ["worker-9", "worker-1"]);
        assert_eq!(names("", Order::Amount)[0], "worker-16");
    }

    #[test]
    fn each_worker_has_a_state_in_which_it_is_counted() {
        let mut report = stats("program", 8).report;
        report.pools[0].workers[1].retiring = true;
        let gone = report.pools[0].workers.remove(7).process;
        let process = report.processes.iter_mut().find(|process| process.id == gone).unwrap();
        process.state = ProcessState::Waiting("there is no room".into());
        let workers = of_pool(&report, &report.pools[0]);
        let line = |place: usize| format!("{}: {}", workers[place].name, workers[place].lines[0]);
        assert_eq!(line(0), "worker-1: 41.0s simulate::step #124");
        assert_eq!(line(1), "worker-2: stops after its tasks");
        assert_eq!(line(2), "worker-3: simulate::step, 40 pending");
        assert_eq!(line(5), "worker-6: idle");
        assert_eq!(line(7), "worker-8: waiting: there is no room");
        let workers: Vec<&Worker> = workers.iter().collect();
        let counts = counts(&workers).map(|(_, name, number)| format!("{number} {name}"));
        assert_eq!(counts, ["1 slow", "0 long", "1 start", "1 drain", "3 short", "2 idle"]);
    }
}
