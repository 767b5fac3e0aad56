//! Numbers of requests that wait, and names of objects.

use std::panic::Location;

use serde::{Deserialize, Serialize};

/// The number of a request that may be withdrawn or released later. It is unique in the process
/// that sent the request: see `PortRef::ticket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ticket(pub(super) u64);

/// Returns the name of an object in errors: its type, and the place in the program that made it.
pub fn made_at(object: &str, place: &Location<'_>) -> String {
    format!("the {object} made at {}:{}", place.file(), place.line())
}
