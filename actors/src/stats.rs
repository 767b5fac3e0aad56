//! What a process and the processes below it are doing, and the events of its pools.
//!
//! [`stats()`](crate::stats()) returns the figures. Pools, queues, actors and rings count anyway;
//! asking them takes about 1 µs for each worker, and nothing while nobody asks.
//!
//! # Examples
//! ```
//! # fiber::init();
//! let pool = fiber::Pool::builder().name("squares").processes(2).build()?;
//! pool.map(|x: u64| x * x, 0..100).wait()?;
//! for pool in fiber::stats()?.report.pools {
//!     println!("{}: {} tasks done, {} wait", pool.name, pool.tasks.done, pool.tasks.waiting);
//! }
//! # Ok::<(), fiber::Error>(())
//! ```

mod events;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fiber_core::ProcessId;
use parking_lot::Mutex;

pub use self::events::{EventStream, events};
pub(crate) use self::events::{emit, later_than, publish, recent, subscribe};
pub use fiber_core::stats::*;

/// Something that has figures.
pub(crate) trait Source: Send + Sync {
    /// Returns the field by which it is registered.
    fn registration(&self) -> &Registration;

    /// Adds its figures to the report of the process `process`.
    fn report(&self, process: ProcessId, report: &mut Report);

    /// Returns its tasks whose outcomes are recorded, if it may have any.
    fn recorded_tasks(&self) -> Option<&dyn RecordedTasks> {
        None
    }
}

/// The tasks of durable calls, which SIGTERM lets end before the program.
pub(crate) trait RecordedTasks {
    /// Starts no more tasks, and takes no more items.
    fn drain(&self);

    /// Returns how many tasks run.
    fn running(&self) -> u64;

    /// Returns the usual time of a task of the fastest function that has tasks left, as far as it is
    /// known.
    fn usual_time(&self) -> Option<Duration>;

    /// Begins no task, of any call, that would not end within this time.
    fn set_time_left(&self, left: Duration, unfit: Unfit);

    /// Returns whether outcomes are on their way into a journal.
    fn is_recording(&self) -> bool;
}

/// What becomes of calls whose tasks do not fit into the time that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// They fail, so that the program can use the results that it has.
    Fail,
    /// They wait, because the program ends in order and begins again.
    Wait,
}

/// The sources by their numbers, in the order of their registration.
static SOURCES: Mutex<BTreeMap<u64, Weak<dyn Source>>> = Mutex::new(BTreeMap::new());

/// The place of a [`Source`] among all. Dropping it with the source ends the registration: a weak
/// pointer alone would keep the source's memory.
#[derive(Debug, Default)]
pub(crate) struct Registration(AtomicU64);

impl Drop for Registration {
    fn drop(&mut self) {
        let number = *self.0.get_mut();
        if number > 0 {
            SOURCES.lock().remove(&number);
        }
    }
}

/// Registers a source until it is dropped.
pub(crate) fn register<S: Source + 'static>(source: &Arc<S>) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    source.registration().0.store(number, Ordering::Relaxed);
    let source: Weak<S> = Arc::downgrade(source);
    SOURCES.lock().insert(number, source);
}

/// Returns all sources of this process.
pub(crate) fn sources() -> Vec<Arc<dyn Source>> {
    // A source may be dropped by the caller last, which ends its registration: not under the lock.
    SOURCES.lock().values().filter_map(Weak::upgrade).collect()
}

/// Returns the figures of all sources of this process, without its children.
pub(crate) fn own_report(process: ProcessId) -> Report {
    let mut report = Report::default();
    sources().iter().for_each(|source| source.report(process, &mut report));
    report
}

/// Returns whether there are any sources.
pub(crate) fn has_sources() -> bool {
    !SOURCES.lock().is_empty()
}

/// The last figures of pools that have ended, if a reader of totals wants them.
static ENDED: Mutex<Option<Vec<PoolStats>>> = Mutex::new(None);

/// Keeps the last figures of pools from now on, until [`take_ended`] takes them.
#[cfg(feature = "metrics")]
pub(crate) fn keep_ended() {
    ENDED.lock().get_or_insert_default();
}

/// Takes the last figures of the pools of this process that have ended. [`own_report`] does not
/// list these pools any more.
#[cfg(feature = "metrics")]
pub(crate) fn take_ended() -> Vec<PoolStats> {
    ENDED.lock().as_mut().map(std::mem::take).unwrap_or_default()
}

/// Notes the last figures of a pool, if they are wanted.
pub(crate) fn note_ended(last: impl FnOnce() -> PoolStats) {
    if ENDED.lock().is_some() {
        let last = last();
        if let Some(ended) = &mut *ENDED.lock() {
            ended.push(last);
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
        let sources: Vec<Arc<Silent>> = (0..1000).map(|_| Arc::default()).collect();
        sources.iter().for_each(register);
        let numbers: Vec<u64> =
            sources.iter().map(|source| source.registration.0.load(Ordering::Relaxed)).collect();
        let are_registered =
            |expected| numbers.iter().all(|number| SOURCES.lock().contains_key(number) == expected);
        assert!(are_registered(true));
        drop(sources);
        assert!(are_registered(false));
    }
}
