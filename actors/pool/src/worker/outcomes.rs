//! Outcomes that an executor has not sent.

use std::time::{Duration, Instant};

use fiber_values::Outcome;
use fiber_values::blob::Blobs;

use crate::run::{CallId, PREFIX, push_item};
use crate::wire::{ResultRun, Results};

/// An executor sends outcomes when it has as many as tasks left, and they took this long.
const MIN_TIME: Duration = Duration::from_micros(100);
/// An executor sends outcomes when they are this many bytes.
const MAX_BYTES: usize = 32 << 10;

/// Outcomes of one call that an executor has not sent.
#[derive(Default)]
pub(super) struct PendingOutcomes {
    pub(super) call: CallId,
    /// The number of the executor.
    pub(super) thread: u32,
    runs: Vec<ResultRun>,
    bytes: Vec<u8>,
    pub(super) count: u64,
    failed: u32,
    pub(super) since: Option<Instant>,
    /// The number of outcomes at which to check the clock, which costs as much as a short task.
    check_at: u64,
}

impl PendingOutcomes {
    #[inline]
    pub(super) fn add(&mut self, index: u64, outcome: Outcome, value: &[u8]) {
        push_item(&mut self.bytes, value, outcome == Outcome::Failure);
        self.failed += u32::from(outcome == Outcome::Failure);
        let length = (PREFIX + value.len()) as u32;
        self.count += 1;
        match self.runs.last_mut() {
            Some(run) if run.first + u64::from(run.count) == index => {
                run.count += 1;
                run.length += length;
            }
            _ => self.runs.push(ResultRun { first: index, count: 1, length }),
        }
    }

    /// Takes the outcomes, if there are any.
    pub(super) fn take(&mut self) -> Option<Results> {
        if self.count == 0 {
            return None;
        }
        let busy = self.take_time();
        (self.count, self.check_at) = (0, 0);
        let (runs, bytes) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.bytes));
        Some(Results {
            call: self.call,
            busy,
            failed: std::mem::take(&mut self.failed),
            thread: self.thread,
            runs,
            outcomes: bytes.into(),
            blobs: Blobs::default(),
        })
    }

    /// Returns the nanoseconds since outcomes were taken the last time (at least 1), and restarts
    /// the count.
    pub(super) fn take_time(&mut self) -> u64 {
        let now = Instant::now();
        let taken = self.since.replace(now).map_or(0, |since| (now - since).as_nanos() as u64);
        taken.max(1)
    }

    /// Returns whether to send the outcomes while `left` tasks are left, so that the pool can
    /// assign more before this worker runs out.
    #[inline]
    pub(super) fn is_due(&mut self, left: u64) -> bool {
        self.bytes.len() >= MAX_BYTES
            || (left > 0 && self.count >= left.max(self.check_at) && self.took_long())
    }

    /// Checks the clock. Sets the next check to half way to [`MIN_TIME`], estimated from the tasks
    /// so far.
    fn took_long(&mut self) -> bool {
        let Some(since) = self.since else { return true };
        let taken = since.elapsed();
        let missing = MIN_TIME.saturating_sub(taken).as_nanos() as u64;
        self.check_at =
            self.count + self.count.saturating_mul(missing) / (2 * taken.as_nanos().max(1) as u64);
        missing == 0
    }
}
