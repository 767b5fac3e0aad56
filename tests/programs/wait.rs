//! Waiting for what others do, of which nobody tells.

use std::time::{Duration, Instant};

/// How long anything may take that is to happen at all.
pub(crate) const LONG: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

#[track_caller]
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}: it did not come to that");
        std::thread::sleep(LOOK);
    }
}
