//! The details of a process.

use fiber_core::stats::{ProcessStats, ProcessUsage, SessionStats};

use super::format::{age, bytes, percent, plural, span, whole};
use super::memory_text;
use super::table::Mark;
use super::trends::Trends;

/// A process with all that is known of it.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) name: String,
    /// Terms with their texts.
    pub(crate) terms: Vec<(&'static str, String, Mark)>,
    /// The last lines of its output.
    pub(crate) tail: Vec<String>,
}

pub(super) fn details(
    stats: &SessionStats,
    process: &ProcessStats,
    trends: Option<&Trends>,
) -> Details {
    let host = if process.host.is_empty() { "-" } else { &process.host };
    let restarts = plural(usize::try_from(process.restarts).unwrap_or(usize::MAX), "restart");
    let mut terms = vec![
        ("runs", format!("{} on {host}, {}, {}", process.place, process.role, process.state)),
        ("since", format!("{}, after {restarts}", span(age(process.since, stats.taken_at)))),
    ];
    if let Some(usage) = &process.usage {
        let lately = trends.and_then(|trends| trends.cpu(process.id));
        terms.extend(used(usage, lately));
    }
    let mut terms: Vec<_> =
        terms.into_iter().map(|(term, text)| (term, text, Mark::Plain)).collect();
    let mut workers = stats.report.pools.iter().flat_map(|pool| &pool.workers);
    if let Some(worker) = workers.find(|worker| worker.process == process.id) {
        let numbers =
            [(worker.pending, "pending"), (worker.done, "done"), (worker.failed, "failed")]
                .map(|(number, what)| format!("{} {what}", whole(number)));
        let text = format!("{}, {} in all", numbers.join(", "), span(worker.busy));
        terms.push(("tasks", text, Mark::Plain));
        terms.extend(worker.running.iter().map(|task| {
            let (mark, note) = match task.straggler {
                true => (Mark::Slow, ", ten times the usual time"),
                false => (Mark::Plain, ""),
            };
            let (ran, index, function) = (span(task.ran), task.index, &task.function);
            ("runs for", format!("{ran}: task {index} (`{function}`){note}"), mark)
        }));
    }
    Details { name: process.name.clone(), terms, tail: process.tail.clone() }
}

/// Returns what the process itself knows, and how many cores it used lately.
fn used(usage: &ProcessUsage, lately: Option<f64>) -> Vec<(&'static str, String)> {
    let lately = lately.map(|share| format!(", now {}", percent(share))).unwrap_or_default();
    let mut memory = memory_text(usage.memory, usage.pss);
    if usage.pss.is_some() {
        memory += &format!(", {}", memory_text(usage.memory, None));
    }
    let (stored, shared, spilled) =
        (bytes(usage.stored), bytes(usage.shared), bytes(usage.spilled));
    let mut terms = vec![
        ("CPU", format!("{}{lately}, {} threads", span(usage.cpu), usage.threads)),
        ("memory", memory),
        ("values", format!("{stored}, in shared memory {shared}, in a file {spilled}")),
    ];
    if usage.outputs > 0 {
        let elsewhere = match usage.elsewhere {
            0 => String::new(),
            elsewhere => format!(", {} on other machines", bytes(elsewhere)),
        };
        terms.push(("outputs", whole(usage.outputs) + &elsewhere));
    }
    if usage.value_limit > 0 {
        let full = if usage.has_full_values() { ": full" } else { "" };
        terms.push(("limit", format!("{} for values{full}", bytes(usage.value_limit))));
    }
    let (sent, received) = (bytes(usage.sent), bytes(usage.received));
    terms.push(("links", format!("{sent} sent, {received} received")));
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::stats;

    #[test]
    fn a_worker_has_its_statistics_and_its_tasks() {
        let mut stats = stats("simulate", 2);
        let usage = stats.report.processes[1].usage.as_mut().unwrap();
        (usage.stored, usage.shared, usage.value_limit) = (3 << 20, 1 << 20, 4 << 20);
        (usage.outputs, usage.elsewhere) = (340, 5 << 20);
        let details = details(&stats, &stats.report.processes[1], None);
        let terms = details.terms.iter().map(|(term, text, _)| format!("{term}: {text}"));
        assert_eq!(
            terms.collect::<Vec<_>>(),
            [
                "runs: pid 4002 on host, worker, running",
                "since: 3h05m, after 0 restarts",
                "CPU: 1m02s, 3 threads",
                "memory: 12.0M PSS, 32.0M RSS",
                "values: 3.0M, in shared memory 1.0M, in a file 0B",
                "outputs: 340, 5.0M on other machines",
                "limit: 4.0M for values: full",
                "links: 0B sent, 0B received",
                "tasks: 40 pending, 1.0k done, 0 failed, 0ns in all",
                "runs for: 41.0s: task 124 (`simulate::step`), ten times the usual time",
            ]
        );
        assert_eq!(details.terms[9].2, Mark::Slow);
        assert_eq!((&*details.name, &*details.tail[0]), ("squares/worker-1", "line of worker-1"));
    }
}
