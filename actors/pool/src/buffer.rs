//! The memory limit of one call in the process that made it.
//!
//! The buffer counts arguments from the feeder until their tasks complete, and outcomes until the
//! caller takes them. A call whose results are taken one by one has half of its limit for each.
//! `map` stores all results anyway, so its limit applies to arguments alone. The feeder waits while
//! there is no room for arguments. The scheduler hands out no task while there is no room for its
//! outcome. It knows the room from [reports](Report): after each fourth of the buffer that the
//! caller takes, and with the next outcome that it takes while its call is throttled.
//!
//! While the process's [values](value_memory) take as much memory as they may, there is room for a
//! few tasks only. Each call keeps these, so calls that wait for memory never wait for each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use fiber_core::value_memory;

use super::batch::Release;
use super::scheduler::{Amount, Report};

/// Bytes that a block of arguments takes besides the arguments.
const OVERHEAD: u64 = 256;
/// The caller reports each time when it has taken one part in this many of its buffer.
const REPORTED_PART: u64 = 4;
/// How many tasks the feeder may be ahead, however small they are.
const MAX_AHEAD: u64 = 64 << 10;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Buffer {
    max_arguments: u64,
    /// `None` if the caller stores all outcomes anyway.
    max_outcomes: Option<u64>,
    arguments: AtomicU64,
    /// Outcomes that have arrived, also those that the scheduler does not know.
    arrived: Counter,
    /// Outcomes that the scheduler does not know.
    added: Counter,
    taken: Counter,
    /// Bytes of taken outcomes at the last report that was due for their number.
    reported: AtomicU64,
    /// The task whose outcome the caller takes next.
    next: AtomicU64,
    /// Whether the scheduler waits for a report.
    throttled: AtomicBool,
}

/// A number of outcomes that grows.
#[derive(Debug, Default)]
struct Counter {
    tasks: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// Counts bytes before tasks, so that no reader sees tasks without their bytes. Returns the sum
    /// of bytes.
    fn add(&self, tasks: u64, bytes: u64) -> u64 {
        let before = self.bytes.fetch_add(bytes, SeqCst);
        self.tasks.fetch_add(tasks, SeqCst);
        before + bytes
    }

    fn amount(&self) -> Amount {
        let tasks = self.tasks.load(SeqCst);
        Amount { tasks, bytes: self.bytes.load(SeqCst) }
    }
}

impl Buffer {
    pub(super) fn new(limit: u64, release: Release) -> Buffer {
        let max_outcomes = (release == Release::Taken).then_some(limit / 2);
        Buffer {
            max_arguments: limit - max_outcomes.unwrap_or(0),
            max_outcomes,
            arguments: AtomicU64::new(0),
            arrived: Counter::default(),
            added: Counter::default(),
            taken: Counter::default(),
            reported: AtomicU64::new(0),
            next: AtomicU64::new(0),
            throttled: AtomicBool::new(false),
        }
    }

    /// Returns how many bytes of outcomes the caller stores; `None` if it stores all anyway.
    pub(super) fn max_outcomes(&self) -> Option<u64> {
        self.max_outcomes
    }

    /// Counts a block of arguments. Returns the bytes to free with it.
    pub(super) fn store_arguments(&self, bytes: usize) -> u64 {
        let stored = bytes as u64 + OVERHEAD;
        self.arguments.fetch_add(stored, SeqCst);
        stored
    }

    pub(super) fn free_arguments(&self, stored: u64) {
        self.arguments.fetch_sub(stored, SeqCst);
    }

    /// Returns whether a feeder that is `ahead` tasks ahead has to wait. It need not while it is
    /// fewer than `least` tasks ahead.
    pub(super) fn is_full(&self, ahead: u64, least: u64) -> bool {
        let full = || self.arguments.load(SeqCst) >= self.max_arguments || value_memory::is_full();
        ahead >= least && (ahead >= MAX_AHEAD || full())
    }

    /// Returns whether a waiting feeder continues. The buffer is half empty then, so that the
    /// feeder does not wait again at once.
    pub(super) fn has_emptied(&self, ahead: u64, least: u64) -> bool {
        let emptied =
            || self.arguments.load(SeqCst) <= self.max_arguments / 2 && !value_memory::is_full();
        ahead <= least / 2 || (ahead <= MAX_AHEAD / 2 && emptied())
    }

    /// Returns whether outcomes take as much memory as they may, so that recorded ones stay on the
    /// disk. `least` outcomes always fit.
    pub(super) fn is_full_of_outcomes(&self, least: u64) -> bool {
        let Amount { tasks, bytes } = self.stored();
        let full = self.max_outcomes.is_some_and(|max| bytes >= max) || value_memory::is_full();
        full && tasks > least
    }

    /// Returns whether a feeder that waits to deliver recorded outcomes continues.
    pub(super) fn has_emptied_of_outcomes(&self, least: u64) -> bool {
        let Amount { tasks, bytes } = self.stored();
        let emptied = self.max_outcomes.is_none_or(|max| bytes <= max / 2);
        tasks <= least / 2 || (emptied && !value_memory::is_full())
    }

    /// Returns the outcomes that have arrived and have not been taken.
    fn stored(&self) -> Amount {
        let (taken, arrived) = (self.taken.amount(), self.arrived.amount());
        Amount {
            tasks: arrived.tasks.saturating_sub(taken.tasks),
            bytes: arrived.bytes.saturating_sub(taken.bytes),
        }
    }

    /// Counts outcomes that have arrived.
    pub(super) fn store_outcomes(&self, tasks: u64, bytes: u64) {
        self.arrived.add(tasks, bytes);
    }

    /// Counts outcomes that have arrived without the scheduler.
    pub(super) fn add_outcomes(&self, tasks: u64, bytes: u64) {
        self.added.add(tasks, bytes);
        self.arrived.add(tasks, bytes);
    }

    /// Frees outcomes that the caller has taken; it takes that of task `next` next. Returns whether
    /// a report to the scheduler is due.
    #[must_use]
    pub(super) fn free_outcomes(&self, tasks: u64, bytes: u64, next: u64) -> bool {
        self.next.store(next, SeqCst);
        let taken = self.taken.add(tasks, bytes);
        let unreported = taken.saturating_sub(self.reported.load(SeqCst));
        let much = self.max_outcomes.is_some_and(|max| unreported > max / REPORTED_PART);
        if much {
            self.reported.store(taken, SeqCst);
        }
        let throttled = self.throttled.load(SeqCst) && self.throttled.swap(false, SeqCst);
        much || throttled
    }

    /// Returns the report to the scheduler: outcomes taken and added, and the task needed next.
    pub(super) fn report(&self) -> Report {
        // Outcomes are added before they are taken.
        let taken = self.taken.amount();
        Report { taken, added: self.added.amount(), next: self.next.load(SeqCst) }
    }

    /// Notes that the call is throttled since the caller has reported `known` outcomes as taken.
    /// Returns whether a report is due at once, because it has taken more.
    #[must_use]
    pub(super) fn throttle(&self, known: u64) -> bool {
        self.throttled.store(true, SeqCst);
        self.taken.tasks.load(SeqCst) > known && self.throttled.swap(false, SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_call_is_reported_once_when_outcomes_are_taken() {
        let buffer = Buffer::new(1000, Release::Taken);
        buffer.store_outcomes(2, 100);
        assert!(!buffer.throttle(0), "nothing has been taken");
        assert!(buffer.free_outcomes(1, 50, 1));
        assert!(!buffer.free_outcomes(1, 50, 2));
        let taken = Amount { tasks: 2, bytes: 100 };
        assert_eq!(buffer.report(), Report { taken, next: 2, ..Report::default() });
    }

    #[test]
    fn outcomes_that_were_taken_before_the_call_was_throttled_are_reported_at_once() {
        let buffer = Buffer::new(1000, Release::Taken);
        buffer.store_outcomes(2, 100);
        assert!(!buffer.free_outcomes(1, 50, 1));
        assert!(buffer.throttle(0));
        assert!(!buffer.free_outcomes(1, 50, 2), "the report was due once");
    }

    #[test]
    fn a_caller_reports_each_fourth_of_its_buffer() {
        let buffer = Buffer::new(800, Release::Taken);
        let due = (0..41).filter(|next| {
            buffer.store_outcomes(1, 10);
            buffer.free_outcomes(1, 10, *next)
        });
        assert_eq!(due.collect::<Vec<_>>(), [10, 21, 32]);
        buffer.add_outcomes(3, 30);
        assert_eq!(buffer.report().added, Amount { tasks: 3, bytes: 30 });
    }

    #[test]
    fn the_feeder_waits_when_arguments_are_large_or_many() {
        let buffer = Buffer::new(100_000, Release::Completed);
        let stored = buffer.store_arguments(100_000);
        assert!(
            buffer.is_full(4, 4) && !buffer.is_full(3, 4),
            "the least number of tasks always fits"
        );
        assert!(buffer.has_emptied(2, 4) && !buffer.has_emptied(3, 4));
        buffer.free_arguments(stored);
        assert!(!buffer.is_full(100, 4) && buffer.has_emptied(100, 4));
        assert!(buffer.is_full(MAX_AHEAD, 4));
    }
}
