//! Metrics for Prometheus: the head serves the session's statistics over HTTP, on a thread of its
//! own.
//!
//! - `table`: all metrics, with their types and meanings.
//! - `samples`: the values of the metrics in a [`SessionStats`].
//! - `named`: which queues and actors have series of their own.
//! - `totals`: keeps counters from going down when a worker dies or a pool ends.
//! - `text`: the formats of Prometheus and OpenMetrics.
//! - `server`: the HTTP server.

mod named;
mod samples;
mod server;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod totals;

use std::collections::BTreeMap;

use fiber_core::ProcessId;
use fiber_core::stats::{PoolStats, SessionStats};

use self::named::Named;
use self::samples::{EventCounts, Labelled, Samples, Source};
pub(crate) use self::server::bind;
pub use self::table::page;
use self::text::Format;
use self::totals::Totals;

/// Renders a session's statistics, scrape after scrape.
#[derive(Debug, Default)]
struct Renderer {
    totals: Totals,
    queues: Named,
    actors: Named,
    names: Named,
    /// The last counters of pools that have ended since the last rendering.
    ended: BTreeMap<Source, Samples>,
}

impl Renderer {
    /// Notes the last statistics of a pool.
    fn end(&mut self, pool: &PoolStats) {
        samples::count_pool(&mut self.ended, pool);
    }

    fn render(&mut self, stats: &SessionStats, events: &EventCounts, format: Format) -> String {
        let head = stats.report.processes.first().map_or(ProcessId(0), |head| head.id);
        let report = &stats.report;
        let labelled = Labelled {
            queues: self.queues.label(&report.queues, |queue| &queue.name),
            actors: self.actors.label(&report.actors, |actor| &actor.name),
        };
        let mut samples = samples::gauges(stats, &labelled);
        samples.add_names(&labelled, &mut self.names);
        let counters = samples::counters(stats, &labelled);
        self.totals.update(head, std::mem::take(&mut self.ended), counters);
        self.totals.add_to(&mut samples);
        events.add_to(&mut samples);
        text::write(&samples, format)
    }
}
