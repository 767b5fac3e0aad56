//! Counters that outlive what they count.
//!
//! A worker's counters end with it, and a pool's do. The metrics are sums over workers and pools,
//! and must not go down.

use std::collections::{BTreeMap, VecDeque};

use fiber_core::ProcessId;

use super::named;
use super::samples::{Samples, Source, Value};
use super::table::{Id, Metric};

/// The number of queues, actors and names that exist, and that of pools, queues and actors that have
/// ended, with series of their own. Further ones are added up: of those that have ended, the oldest.
pub(super) const NAMED: usize = 100;
/// The label of those that are added up.
const OTHERS: &str = "(ended)";

/// The counters of a session.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// The samples of the last update.
    live: BTreeMap<Source, Samples>,
    /// Pools of this process that are gone, and whose last values follow.
    gone: BTreeMap<Source, Samples>,
    /// The last values of what has ended.
    ended: Samples,
    /// The pools, queues and actors in `ended`, oldest first.
    names: VecDeque<(&'static str, String)>,
}

impl Totals {
    /// Takes the current counters, and then the last ones of pools that had ended before.
    ///
    /// The process `own` has the last values of all its pools, sooner or later.
    pub(super) fn update(
        &mut self,
        own: ProcessId,
        ended: impl IntoIterator<Item = (Source, Samples)>,
        now: BTreeMap<Source, Samples>,
    ) {
        for (source, last) in ended {
            self.live.remove(&source);
            self.gone.remove(&source);
            last.0.into_iter().for_each(|(series, value)| self.end(series, &value));
        }
        for (source, before) in std::mem::take(&mut self.live) {
            let current = now.get(&source);
            if current.is_none() && matches!(source, Source::Pool(process, _) if process == own) {
                self.gone.insert(source, before);
                continue;
            }
            for (series, value) in before.0 {
                let current = current.and_then(|current| current.0.get(&series));
                if current.is_none_or(|current| current.is_below(&value)) {
                    self.end(series, &value);
                }
            }
        }
        self.live = now;
    }

    fn end(&mut self, series: (Id, Vec<String>), value: &Value) {
        if let Some(name) = name_of(series.0.metric(), &series.1)
            && !self.names.contains(&name)
        {
            self.names.push_back(name);
        }
        self.ended.add_series(series, value);
        if self.names.len() > NAMED
            && let Some(oldest) = self.names.pop_front()
        {
            self.forget(&oldest);
        }
    }

    /// Adds the series of a pool, queue or actor to those of the others that have ended.
    fn forget(&mut self, name: &(&'static str, String)) {
        for ((id, mut labels), value) in std::mem::take(&mut self.ended.0) {
            if name_of(id.metric(), &labels).as_ref() == Some(name) {
                labels.fill(OTHERS.to_string());
            }
            self.ended.add_series((id, labels), &value);
        }
    }

    /// Adds all counters to `samples`.
    pub(super) fn add_to(&self, samples: &mut Samples) {
        for live in self.live.values().chain(self.gone.values()).chain([&self.ended]) {
            live.0.iter().for_each(|(series, value)| samples.add_series(series.clone(), value));
        }
    }
}

fn is_sum(label: &str) -> bool {
    [OTHERS, named::OTHERS].contains(&label)
}

/// Returns the pool, queue or actor of a series.
fn name_of(metric: &Metric, labels: &[String]) -> Option<(&'static str, String)> {
    match metric.labels.first() {
        Some(&label) if ["pool", "queue", "actor"].contains(&label) && !is_sum(&labels[0]) => {
            Some((label, labels[0].clone()))
        }
        _ => None,
    }
}
