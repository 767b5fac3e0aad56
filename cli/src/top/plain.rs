//! One look at sessions as plain text, for scripts and terminals that can't be drawn on.

use std::cmp::Reverse;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use fiber_core::stats::SessionStats;

use super::format::{age, bytes, count, plural, span, waiting, whole};
use super::rows::{self, Filter, Order, activity};
use super::theme::Activity;
use super::{names, values, waits};
use crate::terminal::column;

/// The number of tasks, actors and events that are listed.
const MOST: usize = 20;

/// Describes a session. `name` is that of its head.
pub(crate) fn session(name: &str, stats: &SessionStats) -> String {
    let report = &stats.report;
    let up = report.processes.first().map(|head| span(age(head.since, stats.taken_at)));
    let measure = rows::Measure::of(stats);
    let pace = match rows::has_only_actors(stats) {
        true => format!("{} messages/s", count(rows::messages(stats))),
        false => format!("{} tasks/s", count(rows::rate(stats))),
    };
    let mut text = format!(
        "{} ({name}, {}): up {}, {} processes, {pace}, {} {}\n",
        stats.program,
        stats.backend,
        up.unwrap_or_default(),
        report.processes.len(),
        bytes(rows::memory(stats)),
        measure.name(),
    );
    if let Some(warning) = values::warning(report) {
        text += &format!("{warning}\n");
    }
    if let Some(waits) = waits::line(report, |function| function) {
        text += &format!("{waits}\n");
    }
    if let Some(names) = names::line(report) {
        text += &format!("{names}\n");
    }
    let all = Filter::default();
    let pools = report.pools.iter().map(|pool| {
        let running = pool.workers.iter().filter(|worker| activity(worker) >= Activity::Running);
        let tasks = &pool.tasks;
        vec![
            pool.name.clone(),
            format!("{}/{}", pool.ready, pool.wanted),
            pool.idle.to_string(),
            running.count().to_string(),
            count(pool.rate),
            waiting(tasks),
            whole(tasks.pending),
            whole(tasks.done),
            whole(tasks.failed),
            whole(tasks.redelivered),
            whole(pool.deaths),
        ]
    });
    let columns = [
        "POOL",
        "WORKERS",
        "IDLE",
        "RUNNING",
        "TASKS/S",
        "WAITING",
        "PENDING",
        "DONE",
        "FAILED",
        "REDELIVERED",
        "DEATHS",
    ];
    text += &table(&columns, pools);
    let tasks = rows::tasks(stats, &all);
    let slowest = tasks.iter().take(MOST).map(|row| {
        vec![
            span(row.task.ran),
            row.task.function.clone(),
            row.task.index.to_string(),
            format!("{}/{}", row.pool.name, row.worker.name),
            if row.task.straggler { "ten times the usual time" } else { "" }.into(),
        ]
    });
    text += &table(&["RUNS FOR", "FUNCTION", "INDEX", "WORKER", ""], slowest);
    let functions = rows::functions(stats, &all, Order::Time);
    let functions = functions.iter().map(|(pool, function)| {
        vec![
            function.function.clone(),
            pool.name.clone(),
            whole(function.done),
            whole(function.failed),
            span(function.times.quantile(0.5)),
            span(function.times.quantile(0.99)),
            span(function.times.max()),
        ]
    });
    text += &table(&["FUNCTION", "POOL", "DONE", "FAILED", "P50", "P99", "MAX"], functions);
    let actors = rows::actors(stats, &all, Order::Amount);
    let busiest = actors.iter().take(MOST).map(|row| {
        let actor = row.actor;
        vec![
            row.name(),
            actor.actor_type.clone(),
            count(actor.rate),
            whole(actor.waiting),
            whole(actor.handled),
            whole(actor.failed),
            whole(actor.restarts),
            span(actor.latency.quantile(0.5)),
            span(actor.latency.quantile(0.99)),
            row.memory.map_or("-".into(), bytes),
        ]
    });
    let columns = [
        "ACTOR",
        "TYPE",
        "MESSAGES/S",
        "WAITING",
        "HANDLED",
        "FAILED",
        "RESTARTS",
        "P50",
        "P99",
        measure.name(),
    ];
    text += &table(&columns, busiest);
    let mut queues: Vec<_> = report.queues.iter().collect();
    queues.sort_by_key(|queue| Reverse(queue.bytes));
    let queues = queues.into_iter().take(MOST).map(|queue| {
        vec![
            values::name(queue),
            whole(queue.length),
            bytes(queue.bytes),
            whole(queue.blocked),
            whole(queue.waiting),
            whole(queue.put),
            whole(queue.taken),
        ]
    });
    let columns = ["QUEUE", "ELEMENTS", "BYTES", "WAIT FOR ROOM", "CONSUMERS WAIT", "PUT", "TAKEN"];
    text += &table(&columns, queues);
    let processes = rows::processes(stats, &all, Order::Natural);
    let processes = processes.iter().map(|(depth, process)| {
        let usage = process.usage.as_ref();
        vec![
            format!("{}{}", "  ".repeat(*depth), process.name),
            process.state.to_string(),
            process.place.clone(),
            process.restarts.to_string(),
            usage.map_or("-".into(), |usage| span(usage.cpu)),
            usage.map_or("-".into(), |usage| bytes(measure.bytes(usage))),
            span(age(process.since, stats.taken_at)),
        ]
    });
    let columns = ["PROCESS", "STATE", "PLACE", "RESTARTS", "CPU TIME", measure.name(), "AGE"];
    text += &table(&columns, processes);
    let events = rows::events(stats, &all);
    let events = events
        .iter()
        .take(MOST)
        .map(|(event, what)| vec![span(age(event.at, stats.taken_at)), what.clone()]);
    text += &table(&["AGO", "EVENT"], events);
    for (rows, noun, what) in [(tasks.len(), "task", "more run"), (actors.len(), "actor", "more")] {
        let more = rows.saturating_sub(MOST);
        if more > 0 {
            text += &format!("\n{} {what}\n", plural(more, noun));
        }
    }
    text
}

/// Returns a table after an empty line, or nothing if it has no rows.
fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns);
    // The last column may be a text.
    let last = columns.len() - 1;
    let cell = |(at, text): (usize, String)| if at < last { column(&text) } else { text };
    table.add_rows(rows.map(|row| row.into_iter().enumerate().map(cell).collect::<Vec<_>>()));
    if table.is_empty() { String::new() } else { format!("\n{}\n", table.trim_fmt()) }
}

#[cfg(test)]
mod tests {
    use super::session;
    use crate::inspect::testing::{service, stats};

    #[test]
    fn a_look_lists_everything_that_the_screen_shows() {
        let text = session("pid 4001", &stats("simulate", 3));
        for shown in [
            "simulate (pid 4001, local): up 3h05m, 4 processes, 12.3k tasks/s, 50.0M PSS",
            " squares  3/3 ",
            "simulate::step  124",
            "squares/worker-1",
            "ten times the usual time",
            "4.0ms",
            "  squares/worker-3",
            "pid 4004",
            "squares/worker-2 (pid 3999) was killed by signal 9",
        ] {
            assert!(text.contains(shown), "`{shown}` is missing in:\n{text}");
        }
    }

    #[test]
    fn a_look_lists_the_busiest_actors() {
        let mut stats = stats("bank", 0);
        stats.report.pools.clear();
        service(&mut stats, 25);
        let text = session("pid 4001", &stats);
        for shown in [
            "26 processes, 32.5k messages/s, ",
            "teller-25  bank::teller::Teller  2.5k ",
            "0       0         50.0ms  50.0ms  38.0M",
            "5 actors more",
        ] {
            assert!(text.contains(shown), "`{shown}` is missing in:\n{text}");
        }
        assert!(!text.contains("till-1"), "{text}");
    }
}
