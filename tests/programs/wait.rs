//! Waiting for conditions, by polling.

use std::time::{Duration, Instant};

/// Time limit for anything that must happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

#[track_caller]
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !reached() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(LOOK);
    }
}
