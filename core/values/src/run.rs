//! The interface between a worker and an entry: one indirect call runs many tasks.

use std::future::Future;
use std::pin::Pin;

use crate::blob::Blobs;

/// An executor that runs a future to its end on this thread.
pub trait BlockOn {
    /// Polls `future` until it is ready. Timers and I/O work meanwhile.
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>);
}

/// The tasks that an entry runs, one after the other.
pub trait Tasks {
    /// Claims the next task. Returns its encoded arguments with their blobs, and the executor for
    /// its future.
    fn next(&mut self) -> Option<(&[u8], &Blobs, &dyn BlockOn)>;

    /// Ends the task that was claimed last. `value` holds its encoded value or
    /// [`Failure`](fiber_core::Failure); the implementation may take it. `blobs` are those of the
    /// value.
    fn finish(&mut self, outcome: Outcome, value: &mut Vec<u8>, blobs: Blobs);
}

/// The outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A value.
    Value,
    /// A failure of the task itself.
    Failure,
}
