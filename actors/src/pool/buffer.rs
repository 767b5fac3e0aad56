//! The memory limit of one call in the process that made it.
//!
//! The buffer counts arguments from the feeder until their tasks complete, and outcomes until the
//! caller takes them. A call whose results are taken one by one has half of its limit for each.
//! `map` stores all results anyway, so its limit applies to arguments alone. The feeder waits while
//! there is no room for arguments. The scheduler hands out no task while there is no room for its
//! outcome. It expects an outcome as large as the largest recent one.
//!
//! While the process's [values](value_memory) take as much memory as they may, there is room for a
//! few tasks only. Each call keeps these, so calls that wait for memory never wait for each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use fiber_core::value_memory;

use super::batch::Release;

/// Bytes that a block of arguments takes besides the arguments.
const OVERHEAD: u64 = 256;
/// A call takes one part in this many of the process's memory for values at a time, because others
/// take at the same time.
const SHARE: u64 = 4;
/// How many tasks the feeder may be ahead, however small they are.
const MAX_AHEAD: u64 = 64 << 10;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Buffer {
    max_arguments: u64,
    /// `None` if the caller stores all outcomes anyway.
    max_outcomes: Option<u64>,
    arguments: AtomicU64,
    outcomes: AtomicU64,
    /// Tasks whose outcomes have arrived and have not been taken.
    untaken: AtomicU64,
    /// Expected bytes of the next outcome; 0 before the first.
    expected: AtomicU64,
    /// The task whose outcome the caller takes next.
    next: AtomicU64,
    /// Whether the scheduler hands out no tasks until outcomes have been taken.
    throttled: AtomicBool,
}

impl Buffer {
    pub(super) fn new(limit: u64, release: Release) -> Buffer {
        let max_outcomes = (release == Release::Taken).then_some(limit / 2);
        Buffer {
            max_arguments: limit - max_outcomes.unwrap_or(0),
            max_outcomes,
            arguments: AtomicU64::new(0),
            outcomes: AtomicU64::new(0),
            untaken: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            next: AtomicU64::new(0),
            throttled: AtomicBool::new(false),
        }
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
        let full = |max| self.outcomes.load(SeqCst) >= max;
        let full = self.max_outcomes.is_some_and(full) || value_memory::is_full();
        full && self.untaken.load(SeqCst) > least
    }

    /// Returns whether a feeder that waits to deliver recorded outcomes continues.
    pub(super) fn has_emptied_of_outcomes(&self, least: u64) -> bool {
        let emptied = |max| self.outcomes.load(SeqCst) <= max / 2;
        self.untaken.load(SeqCst) <= least / 2
            || (self.max_outcomes.is_none_or(emptied) && !value_memory::is_full())
    }

    /// Counts outcomes that have arrived.
    pub(super) fn store_outcomes(&self, tasks: u64, bytes: u64) {
        self.untaken.fetch_add(tasks, SeqCst);
        self.outcomes.fetch_add(bytes, SeqCst);
        let each = bytes / tasks.max(1);
        if each > 0 {
            let before = self.expected.load(SeqCst);
            // A large outcome among small ones is expected again for a while.
            self.expected.store(each.max(before - before / 8), SeqCst);
        }
    }

    /// Frees outcomes that the caller has taken; it takes that of task `next` next. Returns whether
    /// the scheduler must resume the call, because it is throttled.
    pub(super) fn free_outcomes(&self, tasks: u64, bytes: u64, next: u64) -> bool {
        self.next.store(next, SeqCst);
        self.untaken.fetch_sub(tasks, SeqCst);
        self.outcomes.fetch_sub(bytes, SeqCst);
        self.throttled.load(SeqCst) && self.throttled.swap(false, SeqCst)
    }

    /// Marks the call as throttled. The scheduler has to look for room once more after this,
    /// because outcomes that were taken before do not resume the call.
    pub(super) fn throttle(&self) {
        self.throttled.store(true, SeqCst);
    }

    /// Returns how many more tasks may be handed out while `pending` are pending. There is room for
    /// `least` tasks however large they are.
    pub(super) fn room(&self, pending: u64, least: u64) -> u64 {
        let enough = least.saturating_sub(pending + self.untaken.load(SeqCst));
        let common = value_memory::room() / SHARE;
        let free = match self.max_outcomes {
            Some(max) => max.saturating_sub(self.outcomes.load(SeqCst)).min(common),
            None if common == 0 => 0,
            None => return u64::MAX,
        };
        match free.checked_div(self.expected.load(SeqCst)) {
            Some(fitting) => fitting.saturating_sub(pending).max(enough),
            // The first outcome may have any size.
            None => enough,
        }
    }

    /// Returns whether workers should return tasks that they have not started, while `pending` are
    /// pending.
    pub(super) fn overflows(&self, pending: u64, least: u64) -> bool {
        let exceeds = |max| self.outcomes.load(SeqCst) > max;
        let full = self.max_outcomes.is_some_and(exceeds) || value_memory::is_full();
        full && pending + self.untaken.load(SeqCst) > least
    }

    /// Returns the task whose outcome the caller takes next, if it takes them in order. No room
    /// appears before that.
    pub(super) fn next(&self) -> u64 {
        self.next.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_first_outcome_only_the_least_number_of_tasks_is_handed_out() {
        let buffer = Buffer::new(1000, Release::Taken);
        assert_eq!(buffer.room(0, 4), 4);
        assert_eq!(buffer.room(3, 4), 1);
        buffer.store_outcomes(1, 10);
        assert_eq!(buffer.room(3, 4), 46, "49 of 10 bytes fit, 3 are pending");
    }

    #[test]
    fn a_large_outcome_is_expected_again_for_a_while() {
        let buffer = Buffer::new(100_000, Release::Taken);
        buffer.store_outcomes(1, 10_000);
        buffer.free_outcomes(1, 10_000, 1);
        assert_eq!(buffer.room(0, 1), 5);
        buffer.store_outcomes(1, 10);
        buffer.free_outcomes(1, 10, 2);
        assert_eq!(buffer.room(0, 1), 5);
        for next in 3..100 {
            buffer.store_outcomes(1, 10);
            buffer.free_outcomes(1, 10, next);
        }
        assert!(buffer.room(0, 1) > 1000);
    }

    #[test]
    fn a_throttled_call_resumes_once_when_outcomes_are_taken() {
        let buffer = Buffer::new(100, Release::Taken);
        buffer.store_outcomes(2, 100);
        assert_eq!(buffer.room(0, 1), 0);
        buffer.throttle();
        assert!(buffer.free_outcomes(1, 50, 1));
        assert!(!buffer.free_outcomes(1, 50, 2));
        assert_eq!((buffer.room(0, 1), buffer.next()), (1, 2));
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
        assert_eq!(buffer.room(1000, 1), u64::MAX, "`map` stores all results anyway");
    }
}
