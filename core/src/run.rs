//! How a worker hands tasks to a function, many to one call, so that each costs nanoseconds.

use std::future::Future;
use std::pin::Pin;

/// Runs a future to its end on this thread.
pub trait BlockOn {
    /// Polls `future` until it is ready, with timers and I/O at work.
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>);
}

/// The tasks that an entry is to run, one after the other.
pub trait Tasks {
    /// Claims the next task: its encoded arguments, and what runs its future if it has one.
    fn next(&mut self) -> Option<(&[u8], &dyn BlockOn)>;

    /// Ends the task that was claimed last. `value` holds its encoded value or
    /// [`Failure`](crate::Failure), and may be taken.
    fn finish(&mut self, outcome: Outcome, value: &mut Vec<u8>);
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a value.
    Value,
    /// With a failure of its own.
    Failure,
}
