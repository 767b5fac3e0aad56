//! Numbers of requests that wait, and names of objects.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The number of a request that may be withdrawn or released later. It is unique in the process
/// that sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ticket(u64);

impl Ticket {
    pub(crate) fn new() -> Ticket {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Ticket(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// Returns the name of an object in errors: its type, and the place in the program that made it.
pub(crate) fn made_at(object: &str, place: &Location<'_>) -> String {
    format!("the {object} made at {}:{}", place.file(), place.line())
}
