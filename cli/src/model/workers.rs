//! The workers of a pool, one by one.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use fiber_core::ProcessId;
use fiber_core::stats::{PoolStats, ProcessRole, ProcessState, Report, RunningTask, WorkerStats};

use super::format::{span, whole};
use super::table::{Filter, Order};

/// The state of a worker. One that is more noticeable is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Idle,
    Short,
    Draining,
    Starting,
    Long,
    Slow,
}

impl State {
    /// All states, the most noticeable first.
    pub(crate) const ALL: [State; 6] =
        [State::Slow, State::Long, State::Starting, State::Draining, State::Short, State::Idle];

    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Short => "short",
            State::Draining => "drain",
            State::Starting => "start",
            State::Long => "long",
            State::Slow => "slow",
        }
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            State::Idle => "has no task",
            State::Short => "runs short tasks",
            State::Draining => "stops after its tasks",
            State::Starting => "starts, or waits for a place",
            State::Long => "runs a task of 5 ms or more",
            State::Slow => "runs a straggler",
        }
    }
}

/// A worker of a pool.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) process: ProcessId,
    /// Its name in the pool.
    pub(crate) name: String,
    pub(crate) state: State,
    /// The task that has run for longest, of those that have run for a while.
    pub(crate) task: Option<RunningTask>,
    /// The function of its short tasks, or why it has none.
    pub(crate) what: String,
    pub(crate) done: u64,
    pending: u64,
    failed: u64,
    busy: Duration,
}

impl Worker {
    /// Returns what it does, in a line.
    pub(crate) fn line(&self) -> String {
        match (&self.task, self.state) {
            (Some(task), _) => format!("{} {} #{}", span(task.ran), task.function, task.index),
            (None, State::Short) => format!("{}, {} pending", self.what, whole(self.pending)),
            (None, State::Idle) => "idle".into(),
            (None, _) => self.what.clone(),
        }
    }

    fn ready(worker: &WorkerStats) -> Worker {
        let function = worker.function.clone().unwrap_or_default();
        let (state, what) = match worker {
            worker if worker.running.iter().any(|task| task.straggler) => (State::Slow, function),
            worker if worker.retiring => (State::Draining, "stops after its tasks".into()),
            worker if !worker.running.is_empty() => (State::Long, function),
            worker if worker.pending > 0 => (State::Short, function),
            _ => (State::Idle, String::new()),
        };
        Worker {
            process: worker.process,
            name: worker.name.clone(),
            state,
            task: worker.running.iter().max_by_key(|task| task.ran).cloned(),
            what,
            done: worker.done,
            pending: worker.pending,
            failed: worker.failed,
            busy: worker.busy,
        }
    }
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
            state: State::Starting,
            task: None,
            what: process.state.to_string(),
            done: 0,
            pending: 0,
            failed: 0,
            busy: Duration::ZERO,
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
        let function = worker.task.as_ref().map_or(&worker.what, |task| &task.function);
        filter.passes(&worker.name) || filter.passes(function)
    };
    let mut listed: Vec<&Worker> = workers.iter().filter(passes).collect();
    let ran = |worker: &Worker| worker.task.as_ref().map(|task| task.ran);
    match order {
        Order::Natural => {}
        Order::Time => listed.sort_by_key(|worker| Reverse((ran(worker), worker.busy))),
        Order::Amount => listed.sort_by_key(|worker| Reverse(worker.done)),
        Order::Failures => listed.sort_by_key(|worker| Reverse(worker.failed)),
    }
    listed
}

/// Returns how many of these workers have each state, the most noticeable first.
pub(crate) fn counts<'a>(workers: impl IntoIterator<Item = &'a Worker>) -> [(State, usize); 6] {
    let mut counts = State::ALL.map(|state| (state, 0));
    for worker in workers {
        let count = counts.iter_mut().find(|(state, _)| *state == worker.state);
        count.into_iter().for_each(|(_, number)| *number += 1);
    }
    counts
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
        let line = |place: usize| format!("{}: {}", workers[place].name, workers[place].line());
        assert_eq!(line(0), "worker-1: 41.0s simulate::step #124");
        assert_eq!(line(1), "worker-2: stops after its tasks");
        assert_eq!(line(2), "worker-3: simulate::step, 40 pending");
        assert_eq!(line(5), "worker-6: idle");
        assert_eq!(line(7), "worker-8: waiting: there is no room");
        let counts = counts(&workers).map(|(state, number)| format!("{number} {}", state.name()));
        assert_eq!(counts, ["1 slow", "0 long", "1 start", "1 drain", "3 short", "2 idle"]);
    }
}
