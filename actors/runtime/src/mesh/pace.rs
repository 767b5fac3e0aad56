//! How many messages an actor handles in a second.

use std::time::{Duration, Instant};

/// A rate is the mean over one to two of these.
const WINDOW: Duration = Duration::from_secs(5);

/// The numbers of messages that an actor had handled at two times.
pub(super) struct Pace {
    before: (Instant, u64),
    last: (Instant, u64),
}

impl Default for Pace {
    fn default() -> Pace {
        let start = (Instant::now(), 0);
        Pace { before: start, last: start }
    }
}

impl Pace {
    /// Notes that the actor has handled `handled` messages until `now`. Its caller does so before
    /// it counts further ones.
    pub(super) fn note(&mut self, now: Instant, handled: u64) {
        let passed = now.saturating_duration_since(self.last.0);
        if passed >= WINDOW {
            // The time of a long pause does not count.
            self.before = if passed < 2 * WINDOW { self.last } else { (now, handled) };
            self.last = (now, handled);
        }
    }

    /// Returns the messages in a second, if the actor has handled `handled` until `now`.
    pub(super) fn rate(&mut self, now: Instant, handled: u64) -> f64 {
        self.note(now, handled);
        let (since, before) = self.before;
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        handled.saturating_sub(before) as f64 / seconds.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut pace = Pace::default();
        let start = pace.last.0;
        let second = |number: u64| start + Duration::from_secs(number);
        // A first message makes no rate of thousands.
        assert_eq!(pace.rate(start + Duration::from_millis(1), 1), 1.0);
        for number in 1..100 {
            pace.note(second(number), number * 10);
        }
        assert_eq!(pace.rate(second(100), 1_000), 10.0);
        // Later than the last look by less than the window, and by more.
        assert_eq!(pace.rate(second(104), 1_000), 50.0 / 9.0);
        assert_eq!(pace.rate(second(200), 1_000), 0.0);
        // After a pause, its time does not count.
        pace.note(second(1_000), 1_000);
        assert_eq!(pace.rate(second(1_002), 1_200), 100.0);
    }
}
