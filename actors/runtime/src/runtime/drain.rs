//! The end of a program that records what it does, by SIGTERM or a time limit: no more work begins,
//! what runs ends and is recorded, and the exit code says that the program is to be started again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fiber_core::rounded;
use tokio::time::{Instant, sleep};

use super::Runtime;

/// The exit code of a program that is to be continued: `EX_TEMPFAIL` of sysexits.h.
pub(super) const TO_BE_CONTINUED: i32 = 75;

/// How often the runtime looks whether all tasks have ended. A program ends once.
const INTERVAL: Duration = Duration::from_millis(2);
/// Time for the last outcomes to be recorded, after the grace period.
const RECORDING: Duration = Duration::from_secs(5);

/// Something whose tasks end, and are recorded, before the program does. A pool is one.
pub trait DrainHook: Send + Sync {
    /// Starts no more tasks, and takes no more items.
    fn drain(&self);

    /// Returns how many tasks of durable calls run.
    fn running(&self) -> u64;

    /// Returns the usual time of a task of the fastest function that has tasks of durable calls
    /// left, as far as it is known.
    fn usual_time(&self) -> Option<Duration>;

    /// Begins no task, of any call, that would not end within this time.
    fn set_time_left(&self, left: Duration, unfit: Unfit);

    /// Returns whether outcomes are on their way into a journal.
    fn is_recording(&self) -> bool;
}

/// The fate of calls whose tasks do not fit into the time that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// They fail, so that the program can use the results that it has.
    Fail,
    /// They wait, because the program ends in order and begins again.
    Wait,
}

/// Why a program ends in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainCause {
    Sigterm,
    TimeLimit,
}

impl Runtime {
    /// Notes that this process makes durable calls.
    pub fn note_durable_call(&self) {
        self.has_durable_calls.store(true, Ordering::Release);
    }

    pub(super) fn has_durable_calls(&self) -> bool {
        self.has_durable_calls.load(Ordering::Acquire)
    }

    /// Returns whether this program ends in order after SIGTERM, so that no more durable call
    /// begins.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Lets `hook` end in order with the program, by SIGTERM or its time limit, until it is
    /// dropped.
    pub fn on_drain<H: DrainHook + 'static>(&self, hook: &Arc<H>) {
        let hook: Weak<H> = Arc::downgrade(hook);
        self.drain_hooks.lock().push(hook);
    }

    /// Forgets hooks that have been dropped.
    pub fn forget_drained(&self) {
        self.drain_hooks.lock().retain(|hook| hook.strong_count() > 0);
    }

    pub(super) fn drain_hooks(&self) -> Vec<Arc<dyn DrainHook>> {
        // The caller may drop the last reference, which forgets the hook: not under the lock.
        self.drain_hooks.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets the tasks that run end within a grace period, and waits until they are recorded.
    pub(super) async fn drain(&self, cause: DrainCause, grace: Duration) {
        self.is_draining.store(true, Ordering::SeqCst);
        let hooks = self.drain_hooks();
        hooks.iter().for_each(|hook| hook.drain());
        let running = || hooks.iter().map(|hook| hook.running()).sum::<u64>();
        let message = announcement(cause, running(), grace);
        fiber_core::spawn_local(fiber_backends::print_message(message));
        let deadline = Instant::from(fiber_core::deadline_after(grace));
        while running() > 0 && Instant::now() < deadline {
            sleep(INTERVAL).await;
        }
        let deadline = Instant::now() + RECORDING;
        while hooks.iter().any(|hook| hook.is_recording()) && Instant::now() < deadline {
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
