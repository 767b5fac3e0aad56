//! The end of a program that records what it does, by SIGTERM or a time limit: no more work begins,
//! what runs ends and is recorded, and the exit code says that the program is to be started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_core::rounded;
use tokio::time::{Instant, sleep};

use super::Runtime;
use crate::stats::{RecordedTasks, Source, sources};

/// The exit code of a program that is to be continued: `EX_TEMPFAIL` of sysexits.h.
pub(super) const TO_BE_CONTINUED: i32 = 75;

/// How often the runtime looks whether all tasks have ended. A program ends once.
const INTERVAL: Duration = Duration::from_millis(2);
/// Time for the last outcomes to be recorded, after the grace period.
const RECORDING: Duration = Duration::from_secs(5);

/// Whether this process has made durable calls.
static IS_DURABLE: AtomicBool = AtomicBool::new(false);
static IS_DRAINING: AtomicBool = AtomicBool::new(false);

/// Notes that this process makes durable calls.
pub(crate) fn note_durable_call() {
    IS_DURABLE.store(true, Ordering::Release);
}

pub(super) fn has_durable_calls() -> bool {
    IS_DURABLE.load(Ordering::Acquire)
}

/// Returns whether this program ends in order after SIGTERM, so that no more durable call begins.
pub(crate) fn is_draining() -> bool {
    IS_DRAINING.load(Ordering::Acquire)
}

/// Why a program ends in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainCause {
    Sigterm,
    TimeLimit,
}

impl Runtime {
    /// Lets the tasks that run end within a grace period, and waits until they are recorded.
    pub(super) async fn drain(&self, cause: DrainCause, grace: Duration) {
        IS_DRAINING.store(true, Ordering::SeqCst);
        let sources: Vec<Arc<dyn Source>> = sources();
        let tasks = || sources.iter().filter_map(|source| source.recorded_tasks());
        tasks().for_each(RecordedTasks::drain);
        let running = || tasks().map(RecordedTasks::running).sum::<u64>();
        let message = announcement(cause, running(), grace);
        tokio::task::spawn_local(fiber_backends::print_message(message));
        let deadline = Instant::now() + grace;
        while running() > 0 && Instant::now() < deadline {
            sleep(INTERVAL).await;
        }
        let deadline = Instant::now() + RECORDING;
        while tasks().any(RecordedTasks::is_recording) && Instant::now() < deadline {
            sleep(INTERVAL).await;
        }
    }
}

fn announcement(cause: DrainCause, running: u64, grace: Duration) -> String {
    let grace = rounded(grace);
    let what = match running {
        0 => "no task is running: ending".to_string(),
        1 => format!("1 task is running: waiting up to {grace} for it"),
        tasks => format!("{tasks} tasks are running: waiting up to {grace} for them"),
    };
    let (cause, more) = match cause {
        DrainCause::Sigterm if running > 0 => ("SIGTERM", "; a second SIGTERM ends at once"),
        DrainCause::Sigterm => ("SIGTERM", ""),
        DrainCause::TimeLimit => ("the time limit is near", ""),
    };
    format!("fiber: {cause}: {what}{more} (exit code {TO_BE_CONTINUED}: to be continued)\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcement_says_what_happens() {
        let grace = Duration::from_secs(25);
        assert_eq!(
            announcement(DrainCause::Sigterm, 4, grace),
            "fiber: SIGTERM: 4 tasks are running: waiting up to 25s for them; a second SIGTERM \
             ends at once (exit code 75: to be continued)\n"
        );
        assert_eq!(
            announcement(DrainCause::Sigterm, 0, grace),
            "fiber: SIGTERM: no task is running: ending (exit code 75: to be continued)\n"
        );
    }
}
