//! The sources of statistics in this process: pools, queues, inboxes, rings and supervision trees.

use std::sync::{Arc, Weak};

use fiber_core::ProcessId;
use fiber_core::inspect::Request;
use fiber_core::stats::{PoolStats, Report};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

/// Dropped sources are removed when there are this many, or twice as many as were left last time.
const MIN_REMOVED: usize = 64;

/// The answer to a request of the command, in JSON, or a message for the user.
pub type Answer = BoxFuture<'static, Result<String, String>>;

/// Something that has statistics.
pub trait Source: Send + Sync {
    /// Adds its statistics to the report of the process `process`.
    fn report(&self, process: ProcessId, report: &mut Report);

    /// Answers a request that is about it.
    fn answer(&self, _request: &Request) -> Option<Answer> {
        None
    }
}

/// The sources of a session in this process.
#[derive(Default)]
pub struct Sources {
    registered: Mutex<Registered>,
    /// The last statistics of pools that have ended, if a reader of totals wants them.
    ended: Mutex<Option<Vec<PoolStats>>>,
}

/// Sources in the order of their registration. A dropped one keeps its memory until it is removed.
#[derive(Default)]
struct Registered {
    sources: Vec<Weak<dyn Source>>,
    /// How many there may be before dropped ones are removed.
    max: usize,
}

impl Sources {
    /// Registers a source until it is dropped.
    pub fn register<S: Source + 'static>(&self, source: &Arc<S>) {
        let source: Weak<S> = Arc::downgrade(source);
        let Registered { sources, max } = &mut *self.registered.lock();
        if sources.len() >= *max {
            sources.retain(|source| source.strong_count() > 0);
            *max = MIN_REMOVED.max(2 * sources.len());
        }
        sources.push(source);
    }

    /// Returns the statistics of all sources, without those of children.
    pub(crate) fn report(&self, process: ProcessId) -> Report {
        let mut report = Report::default();
        self.all().iter().for_each(|source| source.report(process, &mut report));
        report
    }

    /// Returns all sources.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Source>> {
        // A source may be dropped by the caller last: not under the lock.
        self.registered.lock().sources.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the answer of the source that a request is about.
    pub(crate) fn answer(&self, request: &Request) -> Option<Answer> {
        self.all().iter().find_map(|source| source.answer(request))
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.registered.lock().sources.iter().all(|source| source.strong_count() == 0)
    }

    /// Keeps the last statistics of pools from now on, until [`take_ended`](Sources::take_ended)
    /// takes them.
    #[cfg(feature = "metrics")]
    pub(crate) fn keep_ended(&self) {
        self.ended.lock().get_or_insert_default();
    }

    /// Takes the last statistics of the pools that have ended. [`report`](Sources::report) does not
    /// list these pools any more.
    #[cfg(feature = "metrics")]
    pub(crate) fn take_ended(&self) -> Vec<PoolStats> {
        self.ended.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes the last statistics of a pool, if they are wanted.
    pub fn note_ended(&self, last: impl FnOnce() -> PoolStats) {
        if self.ended.lock().is_some() {
            let last = last();
            if let Some(ended) = &mut *self.ended.lock() {
                ended.push(last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Source for Silent {
        fn report(&self, _: ProcessId, _: &mut Report) {}
    }

    #[test]
    fn a_source_leaves_nothing_behind() {
        let registry = Sources::default();
        let sources: Vec<_> = (0..1000).map(|_| Arc::new(Silent)).collect();
        sources.iter().for_each(|source| registry.register(source));
        assert_eq!(registry.all().len(), 1000);
        drop(sources);
        assert!(registry.is_empty());
        (0..1000).for_each(|_| registry.register(&Arc::new(Silent)));
        assert!(registry.registered.lock().sources.len() <= MIN_REMOVED);
    }
}
