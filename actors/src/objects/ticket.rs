//! Numbers of requests that wait.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A request that waits, or what was given for it: its peer's number for it tells it from the
/// peer's others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ticket(u64);

impl Ticket {
    pub(crate) fn new() -> Ticket {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Ticket(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// What errors call an object: its kind, and the place in the program that made it.
pub(crate) fn made_at(kind: &str, place: &Location<'_>) -> String {
    format!("the {kind} made at {}:{}", place.file(), place.line())
}
