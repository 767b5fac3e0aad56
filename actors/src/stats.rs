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

use std::sync::{Arc, Weak};

use fiber_core::ProcessId;
use parking_lot::Mutex;

pub use self::events::{EventStream, events};
pub(crate) use self::events::{emit, later_than, publish, recent, subscribe};
pub use fiber_core::stats::*;

/// Something that has figures.
pub(crate) trait Source: Send + Sync {
    /// Adds its figures to the report of the process `process`.
    fn report(&self, process: ProcessId, report: &mut Report);
}

/// The sources, in the order of their registration. Some may be gone.
static SOURCES: Mutex<Sources> = Mutex::new(Sources { all: Vec::new(), prune_at: 64 });

struct Sources {
    all: Vec<Weak<dyn Source>>,
    /// The number of sources at which to remove those that are gone.
    prune_at: usize,
}

/// Registers a source until it is dropped.
pub(crate) fn register<S: Source + 'static>(source: &Arc<S>) {
    let source: Weak<S> = Arc::downgrade(source);
    let mut sources = SOURCES.lock();
    if sources.all.len() >= sources.prune_at {
        sources.all.retain(|source| source.strong_count() > 0);
        sources.prune_at = (2 * sources.all.len()).max(64);
    }
    sources.all.push(source);
}

/// Returns the figures of all sources of this process, without its children.
pub(crate) fn own_report(process: ProcessId) -> Report {
    // A source may be dropped here last, which may register or drop others: not under the lock.
    let sources: Vec<Arc<dyn Source>> =
        SOURCES.lock().all.iter().filter_map(Weak::upgrade).collect();
    let mut report = Report::default();
    sources.iter().for_each(|source| source.report(process, &mut report));
    report
}

/// Returns whether any source may have figures.
pub(crate) fn has_sources() -> bool {
    SOURCES.lock().all.iter().any(|source| source.strong_count() > 0)
}

/// The last figures of pools that have ended, if a reader of totals wants them.
static ENDED: Mutex<Option<Vec<PoolStats>>> = Mutex::new(None);

/// Keeps the last figures of pools from now on, until [`take_ended`] takes them.
#[cfg(feature = "metrics")]
pub(crate) fn keep_ended() {
    ENDED.lock().get_or_insert_default();
}

/// Takes the last figures of the pools of this process that have ended. [`own_report`] does not list
/// these pools any more.
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
