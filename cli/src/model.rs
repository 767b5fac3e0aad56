//! The view of a session that commands show, computed once from its statistics: tables, lines and numbers
//! with their names, units and marks. `fiber top`, its `--once`, the dashboard and `fiber ps` lay it
//! out.
//!
//! - `table`: columns, rows and cells, with their order and their filter.
//! - `tables`: the tables of a session. A column of all faces is a line there.
//! - `workers`: the workers of a pool, one by one.
//! - `process`: the details of a process.
//! - `trends`: values that need several looks.
//! - `values`, `waits`: lines about what matters now.
//! - `format`: numbers as people read them.

pub(crate) mod format;
mod process;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod trends;
mod values;
mod waits;
pub(crate) mod workers;

use std::sync::Arc;

use fiber_core::ProcessId;
use fiber_core::stats::{PoolStats, ProcessUsage, SessionStats};

use self::table::{Mark, Table};
use self::trends::Trends;
use self::workers::Worker;

/// How many names a line has.
const NAMED: usize = 8;

/// A session as commands show it.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) stats: Arc<SessionStats>,
    /// How long it runs, and its numbers of processes and cores.
    pub(crate) summary: Vec<String>,
    /// Its pace and its memory.
    pub(crate) trends: [Trend; 2],
    /// Lines about what matters now, the most important first.
    pub(crate) notices: Vec<(Mark, String)>,
    pub(crate) pools: Table,
    /// The workers of each pool.
    pub(crate) workers: Vec<Vec<Worker>>,
    pub(crate) calls: Table,
    pub(crate) tasks: Table,
    pub(crate) functions: Table,
    pub(crate) actors: Table,
    pub(crate) queues: Table,
    pub(crate) rings: Table,
    pub(crate) names: Table,
    pub(crate) processes: Table,
    pub(crate) events: Table,
}

/// A number over time.
#[derive(Debug)]
pub(crate) struct Trend {
    pub(crate) name: &'static str,
    pub(crate) now: String,
    /// Its last values, oldest first.
    pub(crate) values: Vec<u64>,
}

impl Model {
    /// Computes what is shown. Some values need the trends of several looks.
    pub(crate) fn new(stats: &Arc<SessionStats>, trends: Option<&Trends>) -> Model {
        let report = &stats.report;
        let warning = values::warning(report).map(|line| (Mark::Bad, line));
        let waits = waits::line(report).map(|line| (Mark::Plain, line));
        Model {
            summary: summary(stats, trends),
            trends: [pace(stats, trends), memory_trend(stats, trends)],
            notices: warning.into_iter().chain(waits).collect(),
            pools: tables::pools(report),
            workers: report.pools.iter().map(|pool| workers::of_pool(report, pool)).collect(),
            calls: tables::calls(stats),
            tasks: tables::tasks(report),
            functions: tables::functions(report),
            actors: tables::actors(stats),
            queues: tables::queues(report),
            rings: tables::rings(report),
            names: tables::names(report),
            processes: tables::processes(stats, trends),
            events: tables::events(stats),
            stats: Arc::clone(stats),
        }
    }

    /// Returns all tables, in the order in which a look lists them.
    pub(crate) fn tables(&self) -> [&Table; 10] {
        let Model { pools, calls, tasks, functions, actors, .. } = self;
        let Model { queues, rings, names, processes, events, .. } = self;
        [pools, calls, tasks, functions, actors, queues, rings, names, processes, events]
    }

    /// Returns a line with the first names of actors, groups and topics, if there are any.
    pub(crate) fn named(&self) -> Option<String> {
        let names = self.names.rows.iter().map(|row| row.cells[0].text.clone());
        let more = self.names.rows.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("{more} more"));
        let shown: Vec<_> = names.take(NAMED).chain(more).collect();
        (!shown.is_empty()).then(|| format!("names: {}", shown.join(", ")))
    }

    /// Returns the summary with the pace and the memory.
    pub(crate) fn whole_summary(&self) -> Vec<String> {
        let trends = self.trends.iter().map(|trend| format!("{} {}", trend.now, trend.name));
        self.summary.iter().cloned().chain(trends).collect()
    }

    /// Returns the details of a process.
    pub(crate) fn process(
        &self,
        id: ProcessId,
        trends: Option<&Trends>,
    ) -> Option<process::Details> {
        Some(process::details(&self.stats, self.stats.report.process(id)?, trends))
    }
}

/// Returns whether a session has actors in place of pools, as a service has.
pub(crate) fn is_service(stats: &SessionStats) -> bool {
    stats.report.pools.is_empty() && !stats.report.actors.is_empty()
}

fn summary(stats: &SessionStats, trends: Option<&Trends>) -> Vec<String> {
    let processes = &stats.report.processes;
    let up = processes.first().map(|head| format::span(format::age(head.since, stats.taken_at)));
    let cores = trends.and_then(|trends| trends.cores(stats));
    [
        up.map(|up| format!("up {up}")),
        Some(format::plural(processes.len(), "process")),
        cores.map(|cores| format!("{cores:.1} cores")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the completed tasks in a second, or the messages that actors handle.
fn pace(stats: &SessionStats, trends: Option<&Trends>) -> Trend {
    let (name, now, values) = match is_service(stats) {
        true => {
            let values = trends.map(|trends| trends.messages.clone());
            ("messages/s", messages(stats), values.unwrap_or_default())
        }
        false => ("tasks/s", rate(stats), throughput(&stats.report.pools)),
    };
    Trend { name, now: format::rate(now), values }
}

fn memory_trend(stats: &SessionStats, trends: Option<&Trends>) -> Trend {
    let values = trends.map(|trends| trends.memory.clone()).unwrap_or_default();
    Trend { name: Measure::of(stats).name(), now: format::bytes(memory(stats)), values }
}

/// Returns the completed tasks of pools in each of the last seconds, oldest first.
fn throughput(pools: &[PoolStats]) -> Vec<u64> {
    let length = pools.iter().map(|pool| pool.history.len()).max().unwrap_or(0);
    let mut sums = vec![0; length];
    for pool in pools {
        let begin = length - pool.history.len();
        sums[begin..].iter_mut().zip(&pool.history).for_each(|(sum, done)| *sum += done);
    }
    sums
}

/// Returns the completed tasks in a second, of all pools.
fn rate(stats: &SessionStats) -> f64 {
    stats.report.pools.iter().map(|pool| pool.rate).sum()
}

/// Returns the messages that actors handle in a second.
fn messages(stats: &SessionStats) -> f64 {
    stats.report.actors.iter().map(|actor| actor.rate).sum()
}

/// How the memory of processes is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// By the proportional set size.
    Pss,
    /// By resident memory, because the system of one of them does not tell the other.
    Rss,
}

impl Measure {
    fn of(stats: &SessionStats) -> Measure {
        let mut all = stats.report.processes.iter().filter_map(|process| process.usage.as_ref());
        if all.all(|usage| usage.pss.is_some()) { Measure::Pss } else { Measure::Rss }
    }

    fn name(self) -> &'static str {
        match self {
            Measure::Pss => "PSS",
            Measure::Rss => "RSS",
        }
    }

    /// Returns the memory of a process in bytes.
    fn bytes(self, usage: &ProcessUsage) -> u64 {
        match self {
            Measure::Pss => usage.pss.unwrap_or(usage.memory),
            Measure::Rss => usage.memory,
        }
    }

    /// Returns an amount with the name of the measure: `12.0M PSS`.
    fn text(self, bytes: u64) -> String {
        format!("{} {}", format::bytes(bytes), self.name())
    }
}

/// Returns the memory of a process by itself: `12.0M PSS`.
pub(crate) fn memory_text(memory: u64, pss: Option<u64>) -> String {
    pss.map_or_else(|| Measure::Rss.text(memory), |pss| Measure::Pss.text(pss))
}

/// Returns the memory of all processes, in bytes.
fn memory(stats: &SessionStats) -> u64 {
    let measure = Measure::of(stats);
    let usage = stats.report.processes.iter().filter_map(|process| process.usage.as_ref());
    usage.map(|usage| measure.bytes(usage)).sum()
}

#[cfg(test)]
mod tests {
    use fiber_core::stats::{NameKind, NameStats};

    use super::*;
    use crate::inspect::testing::stats;

    #[test]
    fn a_line_has_the_first_names_and_groups() {
        let mut stats = stats("crawl", 2);
        let named = |stats: &SessionStats| Model::new(&Arc::new(stats.clone()), None).named();
        assert_eq!(named(&stats), None);
        let mut add = |name: &str, kind, members| {
            let name = NameStats::new(name.into(), kind, "crawl::Frontier".into(), members);
            stats.report.names.push(name);
        };
        add("frontier", NameKind::Name, 1);
        add("fetchers", NameKind::Group, 12);
        add("prices", NameKind::Topic, 3);
        (0..8).for_each(|number| add(&format!("user-{number}"), NameKind::Name, 1));
        let line = named(&stats).unwrap();
        assert!(
            line.starts_with("names: frontier, group fetchers (12), topic prices (3), user-0, ")
        );
        assert!(line.ends_with("user-4, 3 more"), "{line}");
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
        let mut pools = stats("program", 1).report.pools;
        pools[0].history = vec![1, 2, 3];
        let mut younger = pools[0].clone();
        younger.history = vec![10];
        pools.push(younger);
        assert_eq!(throughput(&pools), [1, 2, 13]);
    }
}
