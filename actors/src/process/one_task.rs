//! A single task, as the function of a process or an initializer is one.

use fiber_core::blob::Blobs;
use fiber_core::{BlockOn, Outcome, Tasks};

use crate::blocking::BlockingRuntime;

/// Feeds one task to an entry, and keeps the outcome.
pub(crate) struct OneTask {
    arguments: Option<Vec<u8>>,
    taken: Vec<u8>,
    blobs: Blobs,
    runtime: BlockingRuntime,
    /// The outcome with its encoded value or failure and blobs, once the task has run.
    pub(crate) outcome: Option<(Outcome, Vec<u8>, Blobs)>,
}

impl OneTask {
    pub(crate) fn new(arguments: Vec<u8>) -> OneTask {
        OneTask {
            arguments: Some(arguments),
            taken: Vec::new(),
            blobs: Blobs::default(),
            runtime: BlockingRuntime::default(),
            outcome: None,
        }
    }
}

impl Tasks for OneTask {
    fn next(&mut self) -> Option<(&[u8], &Blobs, &dyn BlockOn)> {
        self.taken = self.arguments.take()?;
        Some((&self.taken, &self.blobs, &self.runtime))
    }

    fn finish(&mut self, outcome: Outcome, value: &mut Vec<u8>, blobs: Blobs) {
        self.outcome = Some((outcome, std::mem::take(value), blobs));
    }
}
