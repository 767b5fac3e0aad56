//! The deadlines of a supervision.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::event::Key;

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Ends the pause before a group restart.
    Group,
    /// Ends the backoff of a child, or the step of its stop.
    Child(Key),
}

/// A deadline that no longer applies stays until it has come: its owner knows the current one.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    /// Sets a deadline, and returns it. A time that no clock reaches has none.
    pub(super) fn set(&mut self, now: Instant, after: Duration, timer: Timer) -> Option<Instant> {
        let until = now.checked_add(after)?;
        self.0.push(Reverse((until, timer)));
        Some(until)
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((until, _))| *until)
    }

    /// Takes the deadlines that have come by now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Timer> {
        let mut due = Vec::new();
        while self.first().is_some_and(|until| until <= now) {
            due.extend(self.0.pop().map(|Reverse((_, timer))| timer));
        }
        due
    }
}

/// Returns whether a deadline has come.
pub(super) fn is_over(until: Option<Instant>, now: Instant) -> bool {
    until.is_some_and(|until| until <= now)
}
