//! An open journal.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fiber_core::Result;

use crate::{Journal, TaskKey};

/// Identifies a call within a journal.
pub type CallId = u32;

/// What identifies a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallLabel {
    /// The name that the user gave, or the order among the calls of this function: `#0`.
    pub name: String,
    /// The function's path.
    pub function: String,
    /// The version that the user set.
    pub version: String,
}

/// How a task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// It has returned.
    Returned,
    /// It has failed by itself. The bytes are the encoded failure.
    Failed,
    /// It was abandoned, because its workers died. The bytes are what the pool has encoded.
    Abandoned,
}

/// A recorded outcome.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the task has ended.
    pub kind: OutcomeKind,
    /// The encoded result.
    pub bytes: Bytes,
    /// The arrays of the result, which are beside its bytes.
    pub blobs: Vec<Bytes>,
}

/// Something to record. The store's thread calls its methods.
pub trait Entry: Send {
    /// Writes the records.
    fn record(&self, recorder: &mut Recorder<'_>);

    /// Called when the records are durable, or with the error that prevented it. Nothing is recorded
    /// after an error: all later entries get it too.
    fn recorded(self: Box<Self>, result: Result<()>);
}

/// Takes the records of an [`Entry`].
pub struct Recorder<'a> {
    _buffer: &'a mut Vec<u8>,
}

impl Recorder<'_> {
    /// Records the outcome of the task `index` of a call.
    pub fn outcome(
        &mut self,
        _call: CallId,
        _key: TaskKey,
        _index: u64,
        _kind: OutcomeKind,
        _bytes: &[u8],
        _blobs: &[&[u8]],
    ) {
        todo!()
    }

    /// Sets the value of a slot.
    pub fn put(&mut self, _slots: &str, _slot: u64, _bytes: &[u8], _blobs: &[&[u8]]) {
        todo!()
    }

    /// Removes a slot.
    pub fn remove(&mut self, _slots: &str, _slot: u64) {
        todo!()
    }
}

/// An open journal. At most one process has it open at a time.
pub struct Store {}

impl Store {
    /// Opens the journal in this folder, or returns the store that this process has open there. A
    /// torn end is cut off.
    pub fn open(_path: &Path, _options: &Journal) -> Result<Arc<Store>> {
        todo!()
    }

    /// Returns the journal's folder.
    pub fn path(&self) -> &Path {
        todo!()
    }

    /// Returns the id of a call, which it gets with its first record.
    pub fn call(&self, _label: &CallLabel) -> CallId {
        todo!()
    }

    /// Returns the key of a task. `blobs` are the arrays beside the encoded argument.
    pub fn key<'a>(
        &self,
        _call: CallId,
        _argument: &[u8],
        _blobs: impl Iterator<Item = &'a [u8]>,
    ) -> TaskKey {
        todo!()
    }

    /// Takes a recorded outcome of a task with this key, which no task has taken since the journal
    /// was opened. Failures are taken if `failures` is set.
    pub fn take(&self, _key: TaskKey, _failures: bool) -> Result<Option<Outcome>> {
        todo!()
    }

    /// Records an entry, together with others.
    pub fn record(&self, _entry: Box<dyn Entry>) {
        todo!()
    }

    /// Returns the slots of a name with their last values, in ascending order.
    pub fn slots(&self, _slots: &str) -> Result<Vec<(u64, Bytes, Vec<Bytes>)>> {
        todo!()
    }

    /// Blocks until all entries are recorded that were passed to [`record`](Store::record) before.
    pub fn flush(&self) {
        todo!()
    }
}
