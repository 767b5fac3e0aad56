//! When this process connects again to processes that it has lost.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fiber_core::ProcessId;

/// The mean pause between attempts to connect to a process again.
const PAUSE: Duration = Duration::from_millis(250);

/// The lost processes that this one connects to again, and when each was lost. It has neither a
/// clock nor random numbers: both are parameters.
#[derive(Debug, Default)]
pub(super) struct Reconnecting {
    lost: HashMap<ProcessId, Instant>,
}

impl Reconnecting {
    /// Notes that this process connects again to one that was lost at this time.
    pub(super) fn begin(&mut self, process: ProcessId, lost_at: Instant) {
        self.lost.insert(process, lost_at);
    }

    /// Notes that a process is connected again, or that nothing has to be sent to it.
    pub(super) fn end(&mut self, process: ProcessId) {
        self.lost.remove(&process);
    }

    /// Ends an attempt that has failed. Returns when the process was lost, and the pause before the
    /// next attempt. None follows when the process was lost more than `limit` ago, or is not to be
    /// connected again. A connection during the pause does not replace the attempt: the attempt
    /// sends the messages that the failed one has left.
    ///
    /// `chance` spreads the attempts of processes that have lost the same one together.
    pub(super) fn failed(
        &mut self,
        process: ProcessId,
        limit: Duration,
        now: Instant,
        chance: &mut dyn FnMut() -> f64,
    ) -> Option<(Instant, Duration)> {
        let lost_at = self.lost.remove(&process)?;
        let goes_on = now.saturating_duration_since(lost_at) < limit;
        goes_on.then(|| (lost_at, PAUSE.mul_f64(0.75 + chance() / 2.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const PROCESS: ProcessId = ProcessId(7);

    #[test]
    fn attempts_follow_each_other_until_the_limit() {
        let (mut reconnecting, start) = (Reconnecting::default(), Instant::now());
        let (mut now, mut attempts) = (start, 0);
        reconnecting.begin(PROCESS, now);
        let mut numbers = [0.0, 0.5, 0.999].into_iter().cycle();
        let mut chance = || numbers.next().unwrap_or_default();
        while let Some((lost_at, pause)) = reconnecting.failed(PROCESS, LIMIT, now, &mut chance) {
            assert!(lost_at == start && pause >= PAUSE * 3 / 4 && pause < PAUSE * 5 / 4);
            now += pause;
            attempts += 1;
            reconnecting.begin(PROCESS, lost_at);
        }
        assert!(attempts == 21 && now >= start + LIMIT);
    }

    #[test]
    fn a_process_that_was_not_connected_or_is_again_gets_no_attempt() {
        let (mut reconnecting, now) = (Reconnecting::default(), Instant::now());
        let failed =
            |reconnecting: &mut Reconnecting| reconnecting.failed(PROCESS, LIMIT, now, &mut || 0.5);
        assert_eq!(failed(&mut reconnecting), None);
        reconnecting.begin(PROCESS, now);
        assert_eq!(failed(&mut reconnecting), Some((now, PAUSE)));
        assert_eq!(failed(&mut reconnecting), None, "an attempt is due already");
        reconnecting.begin(PROCESS, now);
        reconnecting.end(PROCESS);
        assert_eq!(failed(&mut reconnecting), None);
    }
}
