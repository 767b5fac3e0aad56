//! How many restarts a supervisor allows, and how fast.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fiber_core::ExitReason;
use serde::{Deserialize, Serialize};

use super::backoff::Backoff;

/// How many restarts are allowed, and the pauses before them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RestartLimits {
    /// How many restarts are allowed in a period.
    pub intensity: Intensity,
    /// The pauses before restarts.
    pub backoff: Backoff,
}

/// The maximum number of restarts in a period.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Intensity {
    /// The number of restarts.
    pub restarts: u32,
    /// The period.
    pub period: Duration,
}

impl Default for Intensity {
    fn default() -> Intensity {
        Intensity { restarts: 3, period: Duration::from_secs(5) }
    }
}

impl Intensity {
    /// Returns the exit reason of a supervisor whose `child` failed once too often.
    pub(super) fn reached(&self, child: &str, last: ExitReason) -> ExitReason {
        ExitReason::IntensityReached {
            restarts: self.restarts,
            period: self.period,
            child: child.into(),
            last: Box::new(last),
        }
    }
}

/// The times of the failures within the current period.
#[derive(Debug, Default)]
pub(super) struct Failures(VecDeque<Instant>);

impl Failures {
    /// Adds a failure. Returns whether there are more than `limit` allows.
    pub(super) fn add(&mut self, now: Instant, limit: &Intensity) -> bool {
        while self.0.front().is_some_and(|time| now.duration_since(*time) > limit.period) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len() > limit.restarts as usize
    }
}
