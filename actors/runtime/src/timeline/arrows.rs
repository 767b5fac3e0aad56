//! Arrows: from the slice in which a value was made to the slice of a task that took it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::tracks::ThreadKey;
use super::{Inputs, Makers};

/// The number of runs of tasks that are remembered, and of tasks with inputs.
const MAX_REMEMBERED: usize = 64 << 10;
/// The most arrows that lead to one slice.
const MAX_SOURCES: usize = 64;

/// A slice: when it began, and its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) begin: Instant,
    pub(super) thread: Arc<ThreadKey>,
}

/// A slice in which a value was made, and when it was there.
pub(super) struct Source {
    pub(super) place: Place,
    pub(super) at: Instant,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Arrows {
    /// Where tasks have run lately, by their call and the first of their indexes.
    made: BTreeMap<(u64, u64), Made>,
    /// The keys of `made`, oldest first.
    order: VecDeque<(u64, u64)>,
    /// The makers of the inputs of tasks that have not run, by their call and index.
    inputs: BTreeMap<(u64, u64), Makers>,
}

/// A run of tasks: the index after its last, and where it ended.
struct Made {
    end: u64,
    source: Source,
}

impl Arrows {
    /// Notes that a task is about to run with these inputs.
    pub(super) fn expect(&mut self, inputs: Inputs) {
        if self.inputs.len() < MAX_REMEMBERED {
            self.inputs.insert((inputs.call, inputs.index), inputs.makers);
        }
    }

    /// Forgets the tasks of a call that has ended.
    pub(super) fn forget(&mut self, call: u64) {
        self.take((call, 0)..(call, u64::MAX));
    }

    /// Notes where tasks have run.
    pub(super) fn remember(&mut self, place: &Place, call: u64, runs: &[Range<u64>], at: Instant) {
        for run in runs {
            if self.order.len() == MAX_REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.made.remove(&oldest);
            }
            let key = (call, run.start);
            let source = Source { place: place.clone(), at };
            self.made.insert(key, Made { end: run.end, source });
            self.order.push_back(key);
        }
    }

    /// Returns the slices from which arrows lead to `place`, where tasks have run, besides those
    /// that lead there already. If there are too many, these are the ones that ended last. A slice
    /// that began after `place` has none.
    pub(super) fn lead_to(
        &mut self,
        place: &Place,
        call: u64,
        runs: &[Range<u64>],
        known: &mut Vec<Place>,
    ) -> Vec<Source> {
        let mut found: Vec<&Source> = Vec::new();
        let makers: Vec<_> =
            runs.iter().flat_map(|run| self.take((call, run.start)..(call, run.end))).collect();
        for (maker, indexes) in makers {
            let before = self.made.range(..(maker, indexes.end)).rev();
            let made =
                before.take_while(|((of, _), made)| *of == maker && made.end > indexes.start);
            found.extend(made.map(|(_, made)| &made.source));
        }
        found.sort_by_key(|source| Reverse(source.at));
        let mut sources = Vec::new();
        // Viewers draw an arrow from the slice that began first.
        found.retain(|source| source.place.begin <= place.begin && source.place != *place);
        for Source { place: from, at } in found {
            if known.len() < MAX_SOURCES && !known.contains(from) {
                known.push(from.clone());
                sources.push(Source { place: from.clone(), at: *at });
            }
        }
        sources
    }

    /// Takes the makers of the inputs of these tasks.
    fn take(&mut self, tasks: Range<(u64, u64)>) -> Makers {
        let keys: Vec<_> = self.inputs.range(tasks).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.inputs.remove(&key)).flatten().collect()
    }
}
