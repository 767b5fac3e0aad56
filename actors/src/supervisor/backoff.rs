//! How long to wait before a child is restarted.

use std::time::Duration;

/// The pauses before a child's restarts.
///
/// The first restart comes at once. Each further one waits [`first`](Backoff::new), times
/// [`factor`](Backoff::factor) for each restart after that, and never longer than `max`. A random
/// part is taken off each pause ([`jitter`](Backoff::jitter)), so that children that failed
/// together don't come back together. A child that ran for [`reset_after`](Backoff::reset_after)
/// starts again with no pause.
///
/// The default is 100 ms, doubled up to 10 s, half of it random, reset after 10 s.
///
/// ```
/// # use std::time::Duration;
/// # use fiber_actors::supervisor::Backoff;
/// let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2)).factor(3.0).jitter(0.2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    factor: f64,
    max: Duration,
    jitter: f64,
    reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(10))
    }
}

impl Backoff {
    /// Pauses from `first` up to `max`, each twice as long as the one before.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Backoff {
        Backoff {
            first: first.min(max),
            factor: 2.0,
            max,
            jitter: 0.5,
            reset_after: Duration::from_secs(10),
        }
    }

    /// No pauses at all: each restart comes at once.
    #[must_use]
    pub fn none() -> Backoff {
        Backoff::new(Duration::ZERO, Duration::ZERO)
    }

    /// How much longer each pause is than the one before: 2 by default, at least 1.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Backoff {
        self.factor = factor.max(1.0);
        self
    }

    /// Which part of each pause is random, from 0 (none) to 1 (all of it): 0.5 by default.
    #[must_use]
    pub fn jitter(mut self, jitter: f64) -> Backoff {
        self.jitter = jitter.clamp(0.0, 1.0);
        self
    }

    /// A child that ran for this long is restarted at once again: 10 s by default.
    #[must_use]
    pub fn reset_after(mut self, time: Duration) -> Backoff {
        self.reset_after = time;
        self
    }

    pub(super) fn resets_after(&self) -> Duration {
        self.reset_after
    }

    /// The pause before the next restart, when there were `before` in a row already; `random` is
    /// from 0 to 1.
    pub(super) fn pause(&self, before: u32, random: f64) -> Duration {
        let Some(power) = before.checked_sub(1) else { return Duration::ZERO };
        let full = self.first.as_secs_f64() * self.factor.powi(power.min(1_000).cast_signed());
        let full = full.min(self.max.as_secs_f64());
        Duration::try_from_secs_f64(full * (1.0 - self.jitter * random)).unwrap_or(self.max)
    }
}
