//! Waiting for conditions that send no event, by polling.

use std::fmt::Debug;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time limit for anything that must happen.
pub const LONG: Duration = Duration::from_secs(120);
/// The pause after the first check. It doubles after each further one, so that a test that waits for
/// long takes little from its neighbours.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Waits until `reached` returns `true`; `what` describes the event for the error.
#[track_caller]
pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    wait_for(what, || if reached() { Ok(()) } else { Err(()) });
}

/// Waits until `look` returns `Ok`, and returns its value; `what` describes the event. The error
/// shows what `look` has returned last.
#[track_caller]
pub fn wait_for<T, S: Debug>(what: &str, mut look: impl FnMut() -> Result<T, S>) -> T {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < LONG, "{what} did not happen: {seen:#?}"),
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Waits for the end of a process.
#[track_caller]
pub fn wait_for_end(process: &mut Child) -> ExitStatus {
    wait_for("the end of a process", || process.try_wait().expect("it is a child").ok_or(()))
}

/// Waits until this process is killed.
pub fn hang() -> ! {
    loop {
        // It may return for a wake-up that came late.
        std::thread::park();
    }
}
