//! The recorder of outcomes and slots.

use fiber_core::Result;

use crate::writer::Writer;
use crate::{CallId, OutcomeKind, TaskKey};

/// Something to record. The store's thread calls its methods.
pub trait Entry: Send {
    /// Writes the records.
    fn record(&self, recorder: &mut Recorder<'_>);

    /// Called when the records are durable, or with the error that prevented it. Nothing is
    /// recorded after an error: all later entries get it too.
    fn recorded(self: Box<Self>, result: Result<()>);
}

/// Takes the records of an [`Entry`].
#[allow(missing_debug_implementations, reason = "it only exists while an entry is recorded")]
pub struct Recorder<'a> {
    pub(crate) writer: &'a mut Writer,
}

impl Recorder<'_> {
    /// Records the outcome of the task `index` of a call.
    pub fn outcome(
        &mut self,
        call: CallId,
        key: TaskKey,
        index: u64,
        kind: OutcomeKind,
        bytes: &[u8],
        blobs: &[&[u8]],
    ) {
        self.writer.outcome(call, key, index, kind, bytes, blobs);
    }

    /// Sets the value of a slot.
    pub fn put(&mut self, slots: &str, slot: u64, bytes: &[u8], blobs: &[&[u8]]) {
        self.writer.put(slots, slot, bytes, blobs);
    }

    /// Removes a slot.
    pub fn remove(&mut self, slots: &str, slot: u64) {
        self.writer.remove(slots, slot);
    }
}
