//! The tables of a session. Each column has its head, its width and its value in one place.

use std::cmp::Reverse;
use std::collections::HashMap;

use fiber_core::ProcessId;
use fiber_core::stats::{
    ActorStats, CallStats, Event, EventKind, FunctionStats, NameKind, PoolPhase, PoolStats,
    ProcessRole, ProcessState, ProcessStats, Report, SessionStats,
};

use super::format::{age, both, last};
use super::table::{Cell, Mark, Order, Table};
use super::trends::Trends;
use super::{Measure, memory, rate, values};

/// The number of rows that a look lists of the tables that may have very many.
const MOST: usize = 20;

/// Returns the list of sessions, each with the name of its head.
pub(crate) fn sessions<'a>(
    sessions: impl IntoIterator<Item = (&'a str, &'a SessionStats)>,
) -> Table {
    Table::of("Sessions", sessions)
        .text("NAME", 14, 14, |(name, _)| Cell::text(*name))
        .text("PROGRAM", 12, 40, |(_, stats)| Cell::text(&stats.program))
        .figure("BACKEND", 10, 2, |(_, stats)| Cell::text(&stats.backend))
        .figure("PROCESSES", 9, 1, |(_, stats)| Cell::count(stats.report.processes.len() as u64))
        .figure("TASKS/S", 8, 0, |(_, stats)| Cell::rate(rate(stats)))
        .figure("MEMORY", 10, 0, |(_, stats)| {
            let bytes = memory(stats);
            Cell::number(Measure::of(stats).text(bytes), bytes as f64)
        })
        .figure("AGE", 8, 0, |(_, stats)| {
            let head = stats.report.processes.first();
            Cell::of(head, |head| Cell::time(age(head.since, stats.taken_at)))
        })
        .done()
}

pub(super) fn pools(report: &Report) -> Table {
    let name = |pool: &PoolStats| match pool.phase {
        PoolPhase::Open => pool.name.clone(),
        PoolPhase::Closed => format!("{} (closed)", pool.name),
        _ => format!("{} (ended)", pool.name),
    };
    // Their tasks have run for a while.
    let busy =
        |pool: &PoolStats| pool.workers.iter().filter(|worker| !worker.running.is_empty()).count();
    Table::of("Pools", &report.pools)
        .text("POOL", 8, 40, |pool| Cell::text(name(pool)))
        .figure("WORKERS", 9, 0, |pool| {
            Cell::number(format!("{}/{}", pool.ready, pool.wanted), pool.ready as f64)
        })
        .figure("IDLE", 5, 3, |pool| Cell::count(pool.idle as u64))
        .figure("RUNNING", 7, 12, |pool| Cell::count(busy(pool) as u64))
        .figure("TASKS/S", 7, 1, |pool| Cell::rate(pool.rate))
        .figure("WAITING", 8, 0, |pool| {
            let tasks = &pool.tasks;
            Cell::number(both(tasks.waiting, tasks.held), (tasks.waiting + tasks.held) as f64)
        })
        .figure("PENDING", 8, 2, |pool| Cell::count(pool.tasks.pending))
        .figure("DONE", 8, 0, |pool| Cell::count(pool.tasks.done))
        .figure("FAILED", 7, 0, |pool| {
            let (failed, abandoned) = (pool.tasks.failed, pool.tasks.abandoned);
            let all = failed + abandoned;
            Cell::number(both(failed, abandoned), all as f64).marked_if(all > 0, Mark::Bad)
        })
        .figure("RETRIED", 7, 13, |pool| Cell::count(pool.tasks.retried))
        .figure("REDELIVERED", 11, 11, |pool| Cell::count(pool.tasks.redelivered))
        .figure("DEATHS", 6, 0, |pool| Cell::failures(pool.deaths))
        .figure("SENT", 7, 14, |pool| Cell::bytes(pool.bytes_out))
        .figure("RECEIVED", 8, 14, |pool| Cell::bytes(pool.bytes_in))
        .done()
}

/// Returns the least width of a column of functions: it has room for the last names in their paths,
/// and for the files and lines of closures.
fn least<'a>(functions: impl Iterator<Item = &'a String>) -> usize {
    functions.map(|function| last(function).chars().count()).max().unwrap_or(0).clamp(8, 16)
}

/// Returns the calls that are not complete.
pub(super) fn calls(stats: &SessionStats) -> Table {
    let pools = stats.report.pools.iter();
    let calls: Vec<(&PoolStats, &CallStats)> =
        pools.flat_map(|pool| pool.calls.iter().map(move |call| (pool, call))).collect();
    let shares = |call: &CallStats, total: u64| {
        let share = |tasks: u64| (tasks as f64 / total.max(1) as f64).min(1.0);
        Cell { bar: Some([share(call.done), share(call.pending)]), ..Cell::share(share(call.done)) }
    };
    Table::of("Calls", calls)
        .text("FUNCTION", 8, usize::MAX, |(_, call)| Cell::function(&call.function))
        .text("POOL", 8, 20, |(pool, _)| Cell::text(&pool.name))
        .figure("TASKS", 7, 0, |(_, call)| Cell::of(call.total, Cell::count))
        .figure("DONE", 7, 0, |(_, call)| Cell::count(call.done))
        .figure("PENDING", 7, 0, |(_, call)| Cell::count(call.pending))
        .figure("WAITING", 8, 0, |(_, call)| {
            Cell::number(both(call.waiting, call.held), (call.waiting + call.held) as f64)
        })
        .figure("FOR", 7, 0, |(_, call)| Cell::time(age(call.since, stats.taken_at)))
        .figure("PROGRESS", 8, 0, |(_, call)| Cell::of(call.total, |total| shares(call, total)))
        .done()
}

/// Returns the tasks that have run for a while, longest first.
pub(super) fn tasks(report: &Report) -> Table {
    let pools = report.pools.iter();
    let mut running: Vec<_> = pools
        .flat_map(|pool| pool.running().into_iter().map(move |(worker, task)| (pool, worker, task)))
        .collect();
    running.sort_by_key(|(.., task)| Reverse(task.ran));
    let least = least(running.iter().map(|(.., task)| &task.function));
    let several = report.pools.len() > 1;
    Table::of("Slowest tasks under way", running)
        .figure("RUNS FOR", 8, 0, |(.., task)| {
            let time = Cell::time(task.ran);
            if task.straggler { Cell { text: format!("!{}", time.text), ..time } } else { time }
        })
        .order(Order::Time)
        .text("FUNCTION", least, usize::MAX, |(.., task)| Cell::function(&task.function))
        .figure("INDEX", 7, 1, |(.., task)| Cell::number(task.index.to_string(), task.index as f64))
        .text("WORKER", 10, 10, |(pool, worker, _)| {
            Cell::path(match several {
                true => format!("{}/{}", pool.name, worker.name),
                false => worker.name.clone(),
            })
        })
        .rank(2)
        .rows(|(_, worker, task), row| {
            row.process = Some(worker.process);
            row.mark = if task.straggler { Mark::Slow } else { Mark::Plain };
        })
        .lists(MOST, Order::Natural)
        .done()
}

pub(super) fn functions(report: &Report) -> Table {
    let pools = report.pools.iter();
    let functions: Vec<(&PoolStats, &FunctionStats)> = pools
        .flat_map(|pool| pool.functions.iter().map(move |function| (pool, function)))
        .collect();
    let least = least(functions.iter().map(|(_, one)| &one.function));
    Table::of("Functions", functions)
        .text("FUNCTION", least, usize::MAX, |(_, one)| {
            Cell::function(&one.function).marked_if(one.failed > 0, Mark::Bad)
        })
        .text("POOL", 8, 20, |(pool, _)| Cell::text(&pool.name))
        .rank(12)
        .figure("DONE", 7, 0, |(_, one)| Cell::count(one.done))
        .order(Order::Amount)
        .figure("FAILED", 6, 10, |(_, one)| Cell::failures(one.failed))
        .order(Order::Failures)
        .figure("P50", 7, 0, |(_, one)| Cell::time(one.times.quantile(0.5)))
        .figure("P99", 7, 1, |(_, one)| Cell::time(one.times.quantile(0.99)))
        .figure("MAX", 7, 2, |(_, one)| Cell::time(one.times.max()))
        .figure("TOTAL", 7, 11, |(_, one)| Cell::time(one.times.sum()))
        .order(Order::Time)
        .lists(usize::MAX, Order::Time)
        .done()
}

/// Returns the actors that other processes can reach.
pub(super) fn actors(stats: &SessionStats) -> Table {
    let measure = Measure::of(stats);
    // Other actors share the memory of their process with the program.
    let managed =
        stats.report.processes.iter().filter(|process| process.role == ProcessRole::Actor);
    let memory: HashMap<ProcessId, u64> = managed
        .filter_map(|process| Some((process.id, measure.bytes(process.usage.as_ref()?))))
        .collect();
    let name = |actor: &ActorStats| match actor.names.as_slice() {
        [] => Cell::path(&actor.name),
        names => Cell::text(format!("{} ({})", names.join(", "), actor.name)),
    };
    Table::of("Actors", &stats.report.actors)
        .text("ACTOR", 10, 40, |actor| name(actor))
        .text("TYPE", 10, usize::MAX, |actor| Cell::path(&actor.actor_type))
        .rank(6)
        .figure("MSGS/S", 6, 0, |actor| Cell::rate(actor.rate))
        .order(Order::Amount)
        .figure("WAITING", 7, 0, |actor| Cell::count(actor.waiting))
        .figure("HANDLED", 7, 10, |actor| Cell::count(actor.handled))
        .figure("P50", 7, 4, |actor| Cell::time(actor.latency.quantile(0.5)))
        .figure("P99", 7, 1, |actor| Cell::time(actor.latency.quantile(0.99)))
        .order(Order::Time)
        .figure("FAILED", 6, 2, |actor| Cell::failures(actor.failed))
        .order(Order::Failures)
        .figure("RESTARTS", 8, 3, |actor| Cell::failures(actor.restarts))
        .order(Order::Failures)
        .figure(measure.name(), 6, 5, |actor| {
            Cell::of(memory.get(&actor.process).copied(), Cell::bytes)
        })
        .rows(|actor, row| row.process = Some(actor.process))
        .lists(MOST, Order::Amount)
        .done()
}

pub(super) fn queues(report: &Report) -> Table {
    Table::of("Queues and pipes", &report.queues)
        .text("QUEUE", 10, 40, |queue| Cell::text(values::name(queue)))
        .figure("ELEMENTS", 8, 0, |queue| Cell::count(queue.length))
        .figure("BYTES", 7, 0, |queue| Cell::bytes(queue.bytes))
        .order(Order::Amount)
        .figure("WAIT FOR ROOM", 13, 0, |queue| Cell::count(queue.blocked))
        .figure("CONSUMERS WAIT", 14, 0, |queue| Cell::count(queue.waiting))
        .figure("PUT", 7, 0, |queue| Cell::count(queue.put))
        .figure("TAKEN", 7, 0, |queue| Cell::count(queue.taken))
        .lists(MOST, Order::Amount)
        .done()
}

pub(super) fn rings(report: &Report) -> Table {
    Table::of("Rings", &report.rings)
        .text("RING", 8, 40, |ring| Cell::text(&ring.name))
        .text("FUNCTION", 8, usize::MAX, |ring| Cell::function(&ring.function))
        .figure("NODES", 7, 0, |ring| {
            let running = ring.ranks.iter().flatten().count();
            Cell::number(format!("{running}/{}", ring.ranks.len()), running as f64)
        })
        .figure("START", 5, 0, |ring| Cell::count(ring.attempt))
        .figure("CHECKPOINT", 10, 0, |ring| Cell::of(ring.checkpoint, Cell::count))
        .done()
}

/// Returns the names of actors, the groups with their numbers of members, and the topics with those
/// of their subscriptions.
pub(super) fn names(report: &Report) -> Table {
    Table::of("Names and groups", &report.names)
        .text("NAME", 8, 40, |one| match one.kind {
            NameKind::Group => Cell::text(format!("group {} ({})", one.name, one.members)),
            NameKind::Topic => Cell::text(format!("topic {} ({})", one.name, one.members)),
            _ => Cell::text(&one.name),
        })
        .text("ACTOR, OR MESSAGES", 8, usize::MAX, |one| Cell::path(&one.of))
        .lists(MOST, Order::Natural)
        .done()
}

/// Returns the processes, as a tree. Their shares of the time take several looks.
pub(super) fn processes(stats: &SessionStats, trends: Option<&Trends>) -> Table {
    let measure = Measure::of(stats);
    let table = Table::of("Processes", tree(&stats.report.processes))
        .text("PROCESS", 10, 60, |(_, process)| {
            Cell::path(match &process.state {
                ProcessState::Running => process.name.clone(),
                ProcessState::Waiting(_) => format!("{} (waiting)", process.name),
                other => format!("{} ({other})", process.name),
            })
        })
        .text("PLACE", 10, 40, |(_, process)| Cell::path(&process.place))
        .rank(2);
    let table = match trends {
        Some(trends) => {
            table.figure("CPU", 5, 0, |(_, process)| Cell::of(trends.cpu(process.id), Cell::share))
        }
        None => table,
    };
    table
        .figure("CPU TIME", 8, 10, |(_, process)| {
            Cell::of(process.usage.as_ref(), |usage| Cell::time(usage.cpu))
        })
        .order(Order::Time)
        .figure(measure.name(), 7, 0, |(_, process)| {
            Cell::of(process.usage.as_ref(), |usage| Cell::bytes(measure.bytes(usage)))
        })
        .order(Order::Amount)
        .figure("RESTARTS", 8, 1, |(_, process)| Cell::count(process.restarts))
        .order(Order::Failures)
        .figure("AGE", 7, 11, |(_, process)| Cell::time(age(process.since, stats.taken_at)))
        .rows(|(depth, process), row| {
            (row.depth, row.process) = (*depth, Some(process.id));
            match &process.state {
                ProcessState::Starting => row.mark = Mark::Faint,
                waits @ ProcessState::Waiting(_) => {
                    (row.mark, row.note) = (Mark::Slow, Some(waits.to_string()));
                }
                _ => {}
            }
        })
        .done()
}

/// Returns processes with their depths, each one before those that it has started.
fn tree(all: &[ProcessStats]) -> Vec<(usize, &ProcessStats)> {
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
    let mut rows = Vec::with_capacity(all.len());
    while let Some((depth, process)) = open.pop() {
        rows.push((depth, process));
        let below = children.remove(&process.id).unwrap_or_default();
        open.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
    rows
}

/// Returns the events, newest first.
pub(super) fn events(stats: &SessionStats) -> Table {
    Table::of("Last events", stats.events.iter().rev())
        .figure("AGO", 7, 0, |event| Cell::time(age(event.at, stats.taken_at)))
        .text("EVENT", 20, usize::MAX, |event| Cell::words(event.to_string()))
        .rows(|event, row| row.mark = mark(event))
        .lists(MOST, Order::Natural)
        .done()
}

pub(crate) fn mark(event: &Event) -> Mark {
    match &event.kind {
        EventKind::WorkerStarted { .. } | EventKind::WorkerEnded { expected: true, .. } => {
            Mark::Faint
        }
        EventKind::ChildRestarted { reason, .. }
            if reason.is_normal() || reason.is_disruption() =>
        {
            Mark::Faint
        }
        EventKind::WorkerEnded { .. }
        | EventKind::ChildRestarted { .. }
        | EventKind::GaveUp { .. }
        | EventKind::TaskAbandoned { .. } => Mark::Bad,
        EventKind::Straggler { .. } => Mark::Slow,
        _ => Mark::Plain,
    }
}

#[cfg(test)]
mod tests {
    use fiber_core::ExitReason;

    use super::super::table::Filter;
    use super::*;
    use crate::inspect::testing::{service, stats};

    /// Returns the first cells of a table, in this order.
    fn first(table: &Table, order: Order) -> Vec<String> {
        let rows = table.listed(&Filter::default(), order);
        rows.into_iter().map(|(_, row)| row.cells[0].text.clone()).collect()
    }

    /// Returns the first row of a table, each text with its head.
    fn row(table: &Table) -> String {
        let cells = table.columns.iter().zip(&table.rows[0].cells);
        let cells = cells.map(|(column, cell)| format!("{} {}", column.head, cell.text));
        cells.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn each_column_has_its_number() {
        let mut stats = stats("simulate", 8);
        let tasks = &mut stats.report.pools[0].tasks;
        (tasks.held, tasks.abandoned, tasks.retried) = (340, 1, 4);
        service(&mut stats, 2);
        let report = &stats.report;
        assert_eq!(
            row(&pools(report)),
            "POOL squares, WORKERS 8/8, IDLE 3, RUNNING 1, TASKS/S 12.3k, WAITING 3.0M+340, \
             PENDING 320, DONE 7.0M, FAILED 2+1, RETRIED 4, REDELIVERED 5, DEATHS 1, SENT 0B, \
             RECEIVED 0B"
        );
        assert_eq!(
            row(&calls(&stats)),
            "FUNCTION simulate::step, POOL squares, TASKS 10.0M, DONE 7.0M, PENDING 0, \
             WAITING 3.0M, FOR 3h05m, PROGRESS 70%"
        );
        assert_eq!(
            row(&super::tasks(report)),
            "RUNS FOR !41.0s, FUNCTION simulate::step, INDEX 124, WORKER worker-1"
        );
        assert_eq!(
            row(&functions(report)),
            "FUNCTION simulate::step, POOL squares, DONE 7.0M, FAILED 2, P50 57us, P99 4.0ms, \
             MAX 4.0ms, TOTAL 12m25s"
        );
        assert_eq!(
            row(&actors(&stats)),
            "ACTOR till-1 (teller-1), TYPE bank::teller::Teller, MSGS/S 100, WAITING 12, \
             HANDLED 5.0k, P50 2.0ms, P99 2.0ms, FAILED 0, RESTARTS 0, PSS 14.0M"
        );
        assert_eq!(
            row(&processes(&stats, None)),
            "PROCESS simulate, PLACE pid 4001, CPU TIME 1m01s, PSS 11.0M, RESTARTS 0, \
             AGE 3h05m"
        );
        let killed = "AGO 1m30s, EVENT squares/worker-2 (pid 3999) was killed by signal 9";
        assert!(row(&events(&stats)).starts_with(killed));
    }

    #[test]
    fn processes_are_a_tree_unless_they_are_sorted() {
        let mut stats = stats("program", 3);
        let second = stats.report.processes[2].id;
        let mut below = stats.report.processes[1].clone();
        (below.id, below.parent) = (ProcessId(99), Some(second));
        below.name = "squares/worker-2/inner".into();
        below.state = ProcessState::Starting;
        stats.report.processes.push(below);
        let table = processes(&stats, None);
        let shape = |order| -> Vec<(usize, String)> {
            let rows = table.listed(&Filter::default(), order);
            rows.into_iter().map(|(depth, row)| (depth, row.cells[0].text.clone())).collect()
        };
        let tree = shape(Order::Natural);
        assert_eq!(tree[0], (0, "program".into()));
        assert_eq!(tree[3], (2, "squares/worker-2/inner (starting)".into()));
        assert_eq!(tree[4], (1, "squares/worker-3".into()));
        assert_eq!(shape(Order::Failures)[0], (0, "squares/worker-2".into()));
        assert_eq!(shape(Order::Amount)[0], (0, "squares/worker-3".into()));
    }

    #[test]
    fn orders_have_their_columns() {
        let mut stats = stats("program", 1);
        service(&mut stats, 3);
        let actors = |order| first(&actors(&stats), order);
        assert_eq!(actors(Order::Natural), ["till-1 (teller-1)", "teller-2", "teller-3"]);
        assert_eq!(
            (&*actors(Order::Amount)[0], &*actors(Order::Time)[0]),
            ("teller-3", "teller-3")
        );
        assert_eq!(actors(Order::Failures)[0], "teller-2");
        let mut other = FunctionStats::new("simulate::rest".into());
        (other.done, other.failed) = (8_000_000, 1);
        stats.report.pools[0].functions.push(other);
        let functions = |order| first(&functions(&stats.report), order)[0].clone();
        assert_eq!(functions(Order::Amount), "simulate::rest");
        assert_eq!([functions(Order::Time), functions(Order::Failures)], ["simulate::step"; 2]);
    }

    #[test]
    fn an_actor_that_was_killed_is_as_bad_as_a_worker() {
        let restarted = |reason| {
            let (child, names) = ("teller-1".into(), Vec::new());
            mark(&Event::now(EventKind::ChildRestarted { child, names, reason }))
        };
        let reasons = [ExitReason::Signal(9), ExitReason::Normal, ExitReason::Terminated];
        assert_eq!(reasons.map(restarted), [Mark::Bad, Mark::Faint, Mark::Faint]);
        let gave_up = EventKind::GaveUp { child: "bank".into(), reason: ExitReason::Signal(9) };
        assert_eq!(mark(&Event::now(gave_up)), Mark::Bad);
        assert_eq!(mark(&stats("program", 1).events[0]), Mark::Bad);
    }
}
