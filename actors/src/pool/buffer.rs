//! How much of one call is stored in the process that made it.
//!
//! Stored are arguments, from the feeder until their tasks are settled, and outcomes, until the
//! caller takes them. A call whose results are taken one by one has half of its limit for each;
//! `map` stores all results anyway, so there the limit is for arguments alone. The feeder stops
//! while there is no room for arguments. The scheduler hands no task out while there is no room for
//! its outcome, which is thought to be as large as the largest that came lately.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::exchange::Release;

/// What a block of arguments takes besides them.
const OVERHEAD: u64 = 256;
/// Tasks that the feeder may be ahead, however small they are.
const AHEAD: u64 = 64 << 10;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Buffer {
    most_arguments: u64,
    /// Without any, outcomes don't count.
    most_outcomes: Option<u64>,
    arguments: AtomicU64,
    outcomes: AtomicU64,
    /// Tasks whose outcomes have arrived and have not been taken.
    untaken: AtomicU64,
    /// Bytes of the next outcome; 0 before the first.
    expected: AtomicU64,
    /// The task whose outcome the caller takes next.
    next: AtomicU64,
    /// Whether the scheduler keeps tasks back until outcomes have been taken.
    withholds: AtomicBool,
}

impl Buffer {
    pub(super) fn new(limit: u64, release: Release) -> Buffer {
        let most_outcomes = (release == Release::Taken).then_some(limit / 2);
        Buffer {
            most_arguments: limit - most_outcomes.unwrap_or(0),
            most_outcomes,
            arguments: AtomicU64::new(0),
            outcomes: AtomicU64::new(0),
            untaken: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            next: AtomicU64::new(0),
            withholds: AtomicBool::new(false),
        }
    }

    /// A block of arguments is stored from now on. Returns what is to be freed with it.
    pub(super) fn store_arguments(&self, bytes: usize) -> u64 {
        let stored = bytes as u64 + OVERHEAD;
        self.arguments.fetch_add(stored, SeqCst);
        stored
    }

    pub(super) fn free_arguments(&self, stored: u64) {
        self.arguments.fetch_sub(stored, SeqCst);
    }

    /// Whether the feeder has to stop: it is so many tasks ahead, and may be at least `least`.
    pub(super) fn is_full(&self, ahead: u64, least: u64) -> bool {
        ahead >= least && (ahead >= AHEAD || self.arguments.load(SeqCst) >= self.most_arguments)
    }

    /// Whether a feeder that has stopped goes on: late enough that it does not stop at once again.
    pub(super) fn has_emptied(&self, ahead: u64, least: u64) -> bool {
        ahead <= least / 2
            || (ahead <= AHEAD / 2 && self.arguments.load(SeqCst) <= self.most_arguments / 2)
    }

    /// Outcomes have arrived.
    pub(super) fn store_outcomes(&self, tasks: u64, bytes: u64) {
        if self.most_outcomes.is_none() {
            return;
        }
        self.untaken.fetch_add(tasks, SeqCst);
        self.outcomes.fetch_add(bytes, SeqCst);
        let each = bytes / tasks.max(1);
        if each > 0 {
            let before = self.expected.load(SeqCst);
            // A large outcome among small ones counts for a while.
            self.expected.store(each.max(before - before / 8), SeqCst);
        }
    }

    /// Outcomes have been taken, and the caller goes on with task `next`. Returns whether the
    /// scheduler is to look again, because it keeps tasks back.
    pub(super) fn free_outcomes(&self, tasks: u64, bytes: u64, next: u64) -> bool {
        if self.most_outcomes.is_none() {
            return false;
        }
        self.next.store(next, SeqCst);
        self.untaken.fetch_sub(tasks, SeqCst);
        self.outcomes.fetch_sub(bytes, SeqCst);
        self.withholds.load(SeqCst) && self.withholds.swap(false, SeqCst)
    }

    /// The scheduler is about to keep tasks back. It has to look for room once more after this.
    pub(super) fn withhold(&self) {
        self.withholds.store(true, SeqCst);
    }

    /// How many more tasks may be handed out when so many are pending: enough for `least` in any
    /// case.
    pub(super) fn room(&self, pending: u64, least: u64) -> u64 {
        let Some(most) = self.most_outcomes else { return u64::MAX };
        let enough = least.saturating_sub(pending + self.untaken.load(SeqCst));
        let free = most.saturating_sub(self.outcomes.load(SeqCst));
        match free.checked_div(self.expected.load(SeqCst)) {
            Some(fitting) => fitting.saturating_sub(pending).max(enough),
            // Before the first outcome any size is possible.
            None => enough,
        }
    }

    /// Whether tasks that have been handed out and not begun should come back, when so many are
    /// pending.
    pub(super) fn overflows(&self, pending: u64, least: u64) -> bool {
        let full = self.most_outcomes.is_some_and(|most| self.outcomes.load(SeqCst) > most);
        full && pending + self.untaken.load(SeqCst) > least
    }

    /// The task whose outcome the caller takes next, if it takes them in order: without it no room
    /// comes.
    pub(super) fn next(&self) -> u64 {
        self.next.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_outcomes_may_have_any_size() {
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
    fn what_was_kept_back_is_looked_at_once_when_outcomes_are_taken() {
        let buffer = Buffer::new(100, Release::Taken);
        buffer.store_outcomes(2, 100);
        assert_eq!(buffer.room(0, 1), 0);
        buffer.withhold();
        assert!(buffer.free_outcomes(1, 50, 1));
        assert!(!buffer.free_outcomes(1, 50, 2));
        assert_eq!((buffer.room(0, 1), buffer.next()), (1, 2));
    }

    #[test]
    fn a_feeder_stops_when_arguments_are_large_or_many() {
        let buffer = Buffer::new(100_000, Release::Settled);
        let stored = buffer.store_arguments(100_000);
        assert!(buffer.is_full(4, 4) && !buffer.is_full(3, 4), "a few tasks always fit");
        assert!(buffer.has_emptied(2, 4) && !buffer.has_emptied(3, 4));
        buffer.free_arguments(stored);
        assert!(!buffer.is_full(100, 4) && buffer.has_emptied(100, 4));
        assert!(buffer.is_full(AHEAD, 4));
        assert_eq!(buffer.room(1000, 1), u64::MAX, "the results of `map` are all stored");
    }
}
