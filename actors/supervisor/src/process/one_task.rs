//! A single task, as the function of a process or an initializer is one.

use fiber_values::blob::Blobs;
use fiber_values::codec::EncodedValue;
use fiber_values::{BlockOn, Outcome, Tasks};

use fiber_runtime::blocking::BlockingRuntime;

/// Feeds one task to an entry, and keeps the outcome.
pub(crate) struct OneTask {
    arguments: EncodedValue,
    taken: bool,
    runtime: BlockingRuntime,
    /// The outcome with its encoded value or failure, once the task has run.
    pub(crate) outcome: Option<(Outcome, EncodedValue)>,
}

impl OneTask {
    pub(super) fn new(arguments: EncodedValue) -> OneTask {
        OneTask { arguments, taken: false, runtime: BlockingRuntime::default(), outcome: None }
    }
}

impl Tasks for OneTask {
    fn next(&mut self) -> Option<(&[u8], &Blobs, &dyn BlockOn)> {
        if std::mem::replace(&mut self.taken, true) {
            return None;
        }
        Some((&self.arguments.bytes, &self.arguments.blobs, &self.runtime))
    }

    fn finish(&mut self, outcome: Outcome, value: &mut Vec<u8>, blobs: Blobs) {
        let bytes = std::mem::take(value).into();
        self.outcome = Some((outcome, EncodedValue { bytes, blobs }));
    }
}
