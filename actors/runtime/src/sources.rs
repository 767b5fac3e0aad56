//! The sources of statistics in this process: pools, queues, inboxes, rings and supervision trees.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fiber_core::ProcessId;
use fiber_core::inspect::Request;
use fiber_core::stats::{PoolStats, Report};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

/// The answer to a request of the command, in JSON, or a message for the user.
pub type Answer = BoxFuture<'static, Result<String, String>>;

/// Something that has statistics.
pub trait Source: Send + Sync {
    /// Returns the field by which it is registered.
    fn registration(&self) -> &Registration;

    /// Adds its statistics to the report of the process `process`.
    fn report(&self, process: ProcessId, report: &mut Report);

    /// Answers a request that is about it.
    fn answer(&self, request: &Request) -> Option<Answer> {
        let _ = request;
        None
    }
}

/// The sources of a session in this process.
#[derive(Default)]
pub struct Sources {
    /// By their numbers, in the order of their registration.
    registered: Mutex<BTreeMap<u64, Weak<dyn Source>>>,
    last: AtomicU64,
    /// The last statistics of pools that have ended, if a reader of totals wants them.
    ended: Mutex<Option<Vec<PoolStats>>>,
}

/// The place of a [`Source`] among all. Dropping it with the source ends the registration: a weak
/// pointer alone would keep the source's memory.
#[derive(Default)]
pub struct Registration(OnceLock<(&'static Sources, u64)>);

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some((sources, number)) = self.0.get() {
            sources.registered.lock().remove(number);
        }
    }
}

impl Sources {
    /// Registers a source until it is dropped.
    pub fn register<S: Source + 'static>(&'static self, source: &Arc<S>) {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let first = source.registration().0.set((self, number));
        debug_assert!(first.is_ok(), "a source is registered once");
        let source: Weak<S> = Arc::downgrade(source);
        self.registered.lock().insert(number, source);
    }

    /// Returns the statistics of all sources, without those of children.
    pub(crate) fn report(&self, process: ProcessId) -> Report {
        let mut report = Report::default();
        self.all().iter().for_each(|source| source.report(process, &mut report));
        report
    }

    /// Returns all sources.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Source>> {
        // A source may be dropped by the caller last, which ends its registration: not under the
        // lock.
        self.registered.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the answer of the source that a request is about.
    pub(crate) fn answer(&self, request: &Request) -> Option<Answer> {
        self.all().iter().find_map(|source| source.answer(request))
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.registered.lock().is_empty()
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

    #[derive(Default)]
    struct Silent {
        registration: Registration,
    }

    impl Source for Silent {
        fn registration(&self) -> &Registration {
            &self.registration
        }

        fn report(&self, _: ProcessId, _: &mut Report) {}
    }

    #[test]
    fn a_source_leaves_nothing_behind() {
        let registry: &'static Sources = Box::leak(Box::default());
        let sources: Vec<Arc<Silent>> = (0..1000).map(|_| Arc::default()).collect();
        sources.iter().for_each(|source| registry.register(source));
        assert_eq!(registry.all().len(), 1000);
        drop(sources);
        assert!(registry.is_empty());
    }
}
