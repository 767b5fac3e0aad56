//! The request that this thread handles.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns when nobody waits any more for the answer of the request that this thread handles.
/// `None` without a deadline, and outside of a handler.
pub fn current_deadline() -> Option<Instant> {
    DEADLINE.get()
}

/// Handles a request with this deadline until the guard is dropped.
pub fn enter_request(deadline: Option<Instant>) -> InRequest {
    InRequest { outer: DEADLINE.replace(deadline) }
}

/// Restores the outer request's deadline when it is dropped, also by a panic.
#[derive(Debug)]
#[must_use]
pub struct InRequest {
    outer: Option<Instant>,
}

impl Drop for InRequest {
    fn drop(&mut self) {
        DEADLINE.set(self.outer);
    }
}
