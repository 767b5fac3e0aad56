//! Which queues have series of their own. A program may make any number of queues, with any names.

use std::collections::BTreeMap;

use fiber_core::stats::QueueStats;

use super::totals::NAMED;

/// The label of queues without series of their own.
pub(super) const OTHERS: &str = "(others)";

/// The names of the queues that exist, and whether they have series of their own. A name keeps what
/// it got while a queue has it: if it changed, its counters would count twice.
#[derive(Debug, Default)]
pub(super) struct QueueNames(BTreeMap<String, bool>);

impl QueueNames {
    /// Returns the label of each queue.
    pub(super) fn labels<'a>(&mut self, queues: &'a [QueueStats]) -> Vec<&'a str> {
        let before = std::mem::take(&mut self.0);
        let known = |queue: &QueueStats| Some((queue.name.clone(), *before.get(&queue.name)?));
        self.0 = queues.iter().filter_map(known).collect();
        let mut named = self.0.values().filter(|is_named| **is_named).count();
        let label = |queue: &'a QueueStats| {
            let is_named = *self.0.entry(queue.name.clone()).or_insert_with(|| {
                named += 1;
                named <= NAMED
            });
            if is_named { queue.name.as_str() } else { OTHERS }
        };
        queues.iter().map(label).collect()
    }
}
