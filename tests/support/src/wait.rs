//! Waiting for conditions, by polling.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time limit for anything that must happen.
pub const LONG: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// Waits until `reached` returns `true`; `what` describes it for the error.
#[track_caller]
pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !reached() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(LOOK);
    }
}

/// Waits for the end of a process.
#[track_caller]
pub fn wait_for_end(process: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the end of a process", || {
        status = process.try_wait().expect("it is a child");
        status.is_some()
    });
    status.expect("it was set above")
}
