//! Pauses before restarts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The pauses before a child's restarts.
///
/// The first restart comes at once. The second waits for the [first](Backoff::new) pause, and each
/// further one [`factor`](Backoff::factor) times as long as the one before, up to a maximum. A
/// random part is subtracted from each pause ([`jitter`](Backoff::jitter)), so that children that
/// failed together do not restart together. A child that ran for
/// [`reset_after`](Backoff::reset_after) begins again without a pause.
///
/// The default is 100 ms, doubled up to 10 s, up to half of it random, reset after 10 s.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use fiber::Supervisor;
/// use fiber::supervisor::Backoff;
///
/// let (first, max) = (Duration::from_millis(50), Duration::from_secs(2));
/// let backoff = Backoff::new(first, max)
///     .factor(3.0)
///     .jitter(0.2)
///     .reset_after(Duration::from_secs(60));
/// let patient = Supervisor::builder("patient").backoff(backoff);
/// let eager = Supervisor::builder("eager").backoff(Backoff::none());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Returns pauses from `first` to `max`, each twice as long as the one before. [`Backoff`] has
    /// an example.
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

    /// Returns no pauses: each restart comes at once. [`Backoff`] has an example.
    #[must_use]
    pub fn none() -> Backoff {
        Backoff::new(Duration::ZERO, Duration::ZERO)
    }

    /// Sets the ratio of a pause to the one before: 2 by default, at least 1. [`Backoff`] has an
    /// example.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Backoff {
        self.factor = factor.max(1.0);
        self
    }

    /// Sets the random part of each pause, from 0 (none) to 1 (all of it): 0.5 by default.
    /// [`Backoff`] has an example.
    #[must_use]
    pub fn jitter(mut self, jitter: f64) -> Backoff {
        self.jitter = jitter.clamp(0.0, 1.0);
        self
    }

    /// Sets how long a child must run to restart at once again: 10 s by default. [`Backoff`] has an
    /// example.
    #[must_use]
    pub fn reset_after(mut self, time: Duration) -> Backoff {
        self.reset_after = time;
        self
    }

    pub(super) fn resets_after(&self) -> Duration {
        self.reset_after
    }

    /// Returns the pause before the next restart, after `before` restarts in a row; `random` is
    /// from 0 to 1.
    pub(super) fn pause(&self, before: u32, random: f64) -> Duration {
        let Some(power) = before.checked_sub(1) else { return Duration::ZERO };
        let full = self.first.as_secs_f64() * self.factor.powi(power.min(1_000).cast_signed());
        let full = full.min(self.max.as_secs_f64());
        Duration::try_from_secs_f64(full * (1.0 - self.jitter * random)).unwrap_or(self.max)
    }
}
