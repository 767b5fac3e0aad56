//! The rows of the panes: what of a session's statistics they list, filtered and sorted.

use std::cmp::Reverse;
use std::collections::HashMap;

use fiber_core::ProcessId;
use fiber_core::stats::{
    ActorStats, Event, FunctionStats, PoolStats, ProcessRole, ProcessStats, ProcessUsage,
    RunningTask, SessionStats, WorkerStats,
};

use super::theme::Activity;

/// The order of the rows of a pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the program created them; the tree of processes.
    #[default]
    Natural,
    /// Those that have run for longest, or take most time, first. Of actors, the slowest.
    Time,
    /// Those with most completed tasks, messages in a second, or most memory, first.
    Amount,
    /// Those with most failures or restarts first.
    Failures,
}

impl Order {
    pub(crate) fn next(self) -> Order {
        match self {
            Order::Natural => Order::Time,
            Order::Time => Order::Amount,
            Order::Amount => Order::Failures,
            Order::Failures => Order::Natural,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Natural => "name",
            Order::Time => "time",
            Order::Amount => "amount",
            Order::Failures => "failures",
        }
    }
}

/// The text that rows must contain, in lower case. An empty one lets all pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(pub(crate) String);

impl Filter {
    pub(crate) fn passes(&self, text: &str) -> bool {
        self.0.is_empty() || text.to_lowercase().contains(&self.0.to_lowercase())
    }
}

pub(crate) fn workers<'a>(
    pool: &'a PoolStats,
    filter: &Filter,
    order: Order,
) -> Vec<&'a WorkerStats> {
    let fits = |worker: &&WorkerStats| {
        filter.passes(&worker.name) || worker.function.iter().any(|name| filter.passes(name))
    };
    let mut workers: Vec<&WorkerStats> = pool.workers.iter().filter(fits).collect();
    match order {
        Order::Natural => {}
        Order::Time => workers.sort_by_key(|worker| Reverse((longest(worker), worker.busy))),
        Order::Amount => workers.sort_by_key(|worker| Reverse(worker.done)),
        Order::Failures => workers.sort_by_key(|worker| Reverse(worker.failed)),
    }
    workers
}

fn longest(worker: &WorkerStats) -> Option<std::time::Duration> {
    worker.running.iter().map(|task| task.ran).max()
}

/// Returns the task of a worker that has run for longest.
pub(crate) fn longest_task(worker: &WorkerStats) -> Option<&RunningTask> {
    worker.running.iter().max_by_key(|task| task.ran)
}

pub(crate) fn activity(worker: &WorkerStats) -> Activity {
    match worker {
        worker if worker.running.iter().any(|task| task.straggler) => Activity::Straggler,
        worker if !worker.running.is_empty() => Activity::Running,
        worker if worker.pending > 0 => Activity::Short,
        _ => Activity::Idle,
    }
}

/// A task that has run for a while.
#[derive(Debug)]
pub(crate) struct TaskRow<'a> {
    pub(crate) pool: &'a PoolStats,
    pub(crate) worker: &'a WorkerStats,
    pub(crate) task: &'a RunningTask,
}

/// Returns the tasks of all pools that have run for a while, longest first.
pub(crate) fn tasks<'a>(stats: &'a SessionStats, filter: &Filter) -> Vec<TaskRow<'a>> {
    let pools = stats.report.pools.iter();
    let mut tasks: Vec<TaskRow> = pools
        .flat_map(|pool| {
            let running = pool.running().into_iter();
            running.map(move |(worker, task)| TaskRow { pool, worker, task })
        })
        .filter(|row| filter.passes(&row.task.function) || filter.passes(&row.worker.name))
        .collect();
    tasks.sort_by_key(|row| Reverse(row.task.ran));
    tasks
}

pub(crate) fn functions<'a>(
    stats: &'a SessionStats,
    filter: &Filter,
    order: Order,
) -> Vec<(&'a PoolStats, &'a FunctionStats)> {
    let pools = stats.report.pools.iter();
    let mut functions: Vec<_> = pools
        .flat_map(|pool| pool.functions.iter().map(move |function| (pool, function)))
        .filter(|(_, function)| filter.passes(&function.function))
        .collect();
    match order {
        Order::Natural => {}
        Order::Time => functions.sort_by_key(|(_, function)| Reverse(function.times.sum())),
        Order::Amount => functions.sort_by_key(|(_, function)| Reverse(function.done)),
        Order::Failures => functions.sort_by_key(|(_, function)| Reverse(function.failed)),
    }
    functions
}

/// An actor that other processes can reach.
#[derive(Debug)]
pub(crate) struct ActorRow<'a> {
    pub(crate) actor: &'a ActorStats,
    /// The memory of a process that runs a managed actor, in bytes.
    pub(crate) memory: Option<u64>,
}

impl ActorRow<'_> {
    /// Returns the registered names, if there are any, and the name: `frontier (crawler)`.
    pub(crate) fn name(&self) -> String {
        match self.actor.names.as_slice() {
            [] => self.actor.name.clone(),
            names => format!("{} ({})", names.join(", "), self.actor.name),
        }
    }
}

pub(crate) fn actors<'a>(
    stats: &'a SessionStats,
    filter: &Filter,
    order: Order,
) -> Vec<ActorRow<'a>> {
    let report = &stats.report;
    let measure = Measure::of(stats);
    let managed = report.processes.iter().filter(|process| process.role == ProcessRole::Actor);
    let memory: HashMap<ProcessId, u64> = managed
        .filter_map(|process| Some((process.id, measure.bytes(process.usage.as_ref()?))))
        .collect();
    let row =
        |actor: &'a ActorStats| ActorRow { actor, memory: memory.get(&actor.process).copied() };
    let mut actors: Vec<ActorRow> = report.actors.iter().map(row).collect();
    actors.retain(|row| filter.passes(&row.name()) || filter.passes(&row.actor.actor_type));
    match order {
        Order::Natural => {}
        Order::Time => actors.sort_by_key(|row| Reverse(row.actor.latency.quantile(0.99))),
        Order::Amount => {
            let most = |a: &ActorStats, b: &ActorStats| b.rate.total_cmp(&a.rate);
            actors.sort_by(|a, b| most(a.actor, b.actor));
        }
        Order::Failures => {
            actors.sort_by_key(|row| Reverse(row.actor.failed + row.actor.restarts));
        }
    }
    actors
}

/// Returns the processes with their depth in the tree, or sorted.
pub(crate) fn processes<'a>(
    stats: &'a SessionStats,
    filter: &Filter,
    order: Order,
) -> Vec<(usize, &'a ProcessStats)> {
    let all = &stats.report.processes;
    let mut rows = Vec::with_capacity(all.len());
    if order == Order::Natural && filter.0.is_empty() {
        let known = |id: ProcessId| all.iter().any(|process| process.id == id);
        let is_root = |process: &&ProcessStats| process.parent.is_none_or(|parent| !known(parent));
        let mut children = HashMap::<ProcessId, Vec<&ProcessStats>>::new();
        for process in all {
            if let Some(parent) = process.parent {
                children.entry(parent).or_default().push(process);
            }
        }
        let mut open: Vec<(usize, &ProcessStats)> =
            all.iter().filter(is_root).map(|process| (0, process)).collect();
        open.reverse();
        while let Some((depth, process)) = open.pop() {
            rows.push((depth, process));
            let below = children.remove(&process.id).unwrap_or_default();
            open.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
        }
        return rows;
    }
    rows.extend(
        all.iter().filter(|process| filter.passes(&process.name)).map(|process| (0, process)),
    );
    let usage = |process: &ProcessStats| process.usage.clone();
    match order {
        Order::Natural => {}
        Order::Time => {
            rows.sort_by_key(|(_, process)| Reverse(usage(process).map(|usage| usage.cpu)))
        }
        Order::Amount => {
            let measure = Measure::of(stats);
            rows.sort_by_key(|(_, process)| Reverse(usage(process).map(|it| measure.bytes(&it))))
        }
        Order::Failures => rows.sort_by_key(|(_, process)| Reverse(process.restarts)),
    }
    rows
}

/// Returns the events, newest first.
pub(crate) fn events<'a>(stats: &'a SessionStats, filter: &Filter) -> Vec<(&'a Event, String)> {
    let events = stats.events.iter().rev().map(|event| (event, event.to_string()));
    events.filter(|(_, text)| filter.passes(text)).collect()
}

/// Returns the completed tasks of all pools in each of the last seconds, oldest first.
pub(crate) fn throughput(stats: &SessionStats) -> Vec<u64> {
    let length = stats.report.pools.iter().map(|pool| pool.history.len()).max().unwrap_or(0);
    let mut sums = vec![0; length];
    for pool in &stats.report.pools {
        let begin = length - pool.history.len();
        sums[begin..].iter_mut().zip(&pool.history).for_each(|(sum, done)| *sum += done);
    }
    sums
}

/// Returns the completed tasks in a second, of all pools.
pub(crate) fn rate(stats: &SessionStats) -> f64 {
    stats.report.pools.iter().map(|pool| pool.rate).sum()
}

/// Returns the messages that actors handle in a second.
pub(crate) fn messages(stats: &SessionStats) -> f64 {
    stats.report.actors.iter().map(|actor| actor.rate).sum()
}

/// Returns whether the session has actors in place of pools, as a service has.
pub(crate) fn has_only_actors(stats: &SessionStats) -> bool {
    stats.report.pools.is_empty() && !stats.report.actors.is_empty()
}

/// How the memory of a session's processes is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// By the proportional set size.
    Pss,
    /// By resident memory, because the system of one of them does not tell the other.
    Rss,
}

impl Measure {
    pub(crate) fn of(stats: &SessionStats) -> Measure {
        let mut all = stats.report.processes.iter().filter_map(|process| process.usage.as_ref());
        if all.all(|usage| usage.pss.is_some()) { Measure::Pss } else { Measure::Rss }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Pss => "PSS",
            Measure::Rss => "RSS",
        }
    }

    /// Returns the memory of a process in bytes.
    pub(crate) fn bytes(self, usage: &ProcessUsage) -> u64 {
        match self {
            Measure::Pss => usage.pss.unwrap_or(usage.memory),
            Measure::Rss => usage.memory,
        }
    }
}

/// Returns the memory of all processes, in bytes.
pub(crate) fn memory(stats: &SessionStats) -> u64 {
    let measure = Measure::of(stats);
    let usage = stats.report.processes.iter().filter_map(|process| process.usage.as_ref());
    usage.map(|usage| measure.bytes(usage)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::{service, stats};

    #[test]
    fn workers_are_filtered_and_sorted() {
        let stats = stats("program", 16);
        let pool = &stats.report.pools[0];
        let names = |filter: &str, order| -> Vec<String> {
            let rows = workers(pool, &Filter(filter.into()), order);
            rows.into_iter().map(|worker| worker.name.clone()).collect()
        };
        assert_eq!(names("WORKER-1", Order::Natural).len(), 8);
        assert_eq!(names("", Order::Time)[..2], ["worker-9", "worker-1"]);
        assert_eq!(names("", Order::Amount)[0], "worker-16");
        let states: Vec<_> = pool.workers[..8].iter().map(activity).collect();
        use Activity::{Idle, Short, Straggler};
        assert_eq!(states, [Straggler, Short, Short, Short, Short, Idle, Idle, Idle]);
    }

    #[test]
    fn processes_are_a_tree_unless_they_are_sorted() {
        let mut stats = stats("program", 3);
        let second = stats.report.processes[2].id;
        let mut below = stats.report.processes[1].clone();
        (below.id, below.parent) = (ProcessId(99), Some(second));
        below.name = "squares/worker-2/inner".into();
        stats.report.processes.push(below);
        let shape = |order| -> Vec<(usize, String)> {
            let rows = processes(&stats, &Filter::default(), order);
            rows.into_iter().map(|(depth, process)| (depth, process.name.clone())).collect()
        };
        let tree: Vec<_> = shape(Order::Natural);
        assert_eq!(tree[0], (0, "program".into()));
        assert_eq!(tree[3], (2, "squares/worker-2/inner".into()));
        assert_eq!(tree[4], (1, "squares/worker-3".into()));
        assert_eq!(shape(Order::Failures)[0], (0, "squares/worker-2".into()));
    }

    #[test]
    fn actors_are_filtered_and_sorted() {
        let mut stats = stats("program", 1);
        service(&mut stats, 3);
        let names = |filter: &str, order| -> Vec<String> {
            let rows = actors(&stats, &Filter(filter.into()), order);
            rows.iter().map(ActorRow::name).collect()
        };
        let first = "till-1 (teller-1)";
        assert_eq!(names("", Order::Natural), [first, "teller-2", "teller-3"]);
        assert_eq!(names("", Order::Amount), ["teller-3", "teller-2", first]);
        assert_eq!(names("", Order::Time)[0], "teller-3");
        assert_eq!(names("", Order::Failures)[0], "teller-2");
        assert_eq!(
            (names("till", Order::Natural).len(), names("::TELLER", Order::Time).len()),
            (1, 3)
        );
        assert_eq!(actors(&stats, &Filter::default(), Order::Natural)[1].memory, Some(15 << 20));
    }

    #[test]
    fn memory_that_processes_share_counts_once_where_the_system_tells_it() {
        let mut stats = stats("program", 2);
        assert_eq!((Measure::of(&stats), memory(&stats)), (Measure::Pss, (11 + 12 + 13) << 20));
        stats.report.processes[1].usage.as_mut().unwrap().pss = None;
        assert_eq!((Measure::of(&stats), memory(&stats)), (Measure::Rss, (31 + 32 + 33) << 20));
    }

    #[test]
    fn the_history_of_pools_is_added_up_from_its_end() {
        let mut stats = stats("program", 1);
        stats.report.pools[0].history = vec![1, 2, 3];
        let mut younger = stats.report.pools[0].clone();
        younger.history = vec![10];
        stats.report.pools.push(younger);
        assert_eq!(throughput(&stats), [1, 2, 13]);
    }
}
