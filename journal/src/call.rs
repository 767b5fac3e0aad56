//! The calls of a journal.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::TaskKey;

/// Identifies a call within a journal.
pub type CallId = u32;

/// The identity of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallLabel {
    /// The name that the user gave, or the order among the calls of this function: `#0`.
    pub name: String,
    /// The function's path.
    pub function: String,
    /// The version that the user set.
    pub version: String,
}

/// The calls that have an id.
#[derive(Default)]
pub(crate) struct Calls {
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<CallId, Arc<Call>>,
    ids: HashMap<CallLabel, CallId>,
}

/// A call, with the hashes from which those of its tasks' keys begin.
pub(crate) struct Call {
    pub(crate) label: CallLabel,
    /// The hash of the label, which is the key of the hashes of arguments.
    plain: [u8; 32],
    /// The key for arguments that have blobs.
    with_blobs: [u8; 32],
    /// The key for arguments that have outputs of other tasks among them.
    with_outputs: [u8; 32],
}

impl Calls {
    /// Adds a call that has a record.
    pub(crate) fn insert(&self, id: CallId, label: CallLabel) {
        let mut table = self.table.write();
        table.ids.insert(label.clone(), id);
        table.calls.insert(id, Arc::new(Call::new(label)));
    }

    /// Returns the id of a call. A new call gets the next one.
    pub(crate) fn id(&self, label: &CallLabel) -> CallId {
        if let Some(id) = self.table.read().ids.get(label) {
            return *id;
        }
        let mut table = self.table.write();
        if let Some(id) = table.ids.get(label) {
            return *id;
        }
        let id = table.calls.keys().max().map_or(0, |last| last + 1);
        table.ids.insert(label.clone(), id);
        table.calls.insert(id, Arc::new(Call::new(label.clone())));
        id
    }

    /// Returns a call that has an id.
    pub(crate) fn get(&self, id: CallId) -> Option<Arc<Call>> {
        self.table.read().calls.get(&id).cloned()
    }
}

impl Call {
    fn new(label: CallLabel) -> Call {
        let hash = |context: &str| {
            let mut hasher = blake3::Hasher::new_derive_key(context);
            for part in [&label.name, &label.function, &label.version] {
                hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
            }
            *hasher.finalize().as_bytes()
        };
        let plain = hash("fiber journal 1: argument");
        let with_blobs = hash("fiber journal 1: argument with blobs");
        let with_outputs = hash("fiber journal 1: arguments with outputs");
        Call { label, plain, with_blobs, with_outputs }
    }
}

/// Makes the keys of a call's tasks.
#[derive(Clone)]
pub struct CallKeys(pub(crate) Arc<Call>);

impl CallKeys {
    /// Returns the key of a task. `blobs` are the arrays beside the encoded argument.
    pub fn key<'a>(&self, argument: &[u8], blobs: impl Iterator<Item = &'a [u8]>) -> TaskKey {
        let CallKeys(call) = self;
        let mut blobs = blobs.peekable();
        TaskKey::of(if blobs.peek().is_none() {
            blake3::keyed_hash(&call.plain, argument)
        } else {
            let hasher = blake3::Hasher::new_keyed(&call.with_blobs);
            hash_value(hasher, argument, blobs)
        })
    }

    /// Returns the key of a task that takes outputs of others. `parts` identifies its arguments.
    pub fn key_of_parts(&self, parts: &[u8]) -> TaskKey {
        TaskKey::of(blake3::keyed_hash(&self.0.with_outputs, parts))
    }
}

impl TaskKey {
    fn of(hash: blake3::Hash) -> TaskKey {
        let mut key = [0; 16];
        key.copy_from_slice(&hash.as_bytes()[..16]);
        TaskKey(key)
    }
}

/// Returns a hash of an encoded value and its blobs.
pub fn digest<'a>(value: &[u8], blobs: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    *hash_value(blake3::Hasher::new(), value, blobs).as_bytes()
}

fn hash_value<'a>(
    mut hasher: blake3::Hasher,
    value: &[u8],
    blobs: impl Iterator<Item = &'a [u8]>,
) -> blake3::Hash {
    let mut update = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    };
    update(value);
    blobs.for_each(update);
    hasher.finalize()
}

impl fmt::Debug for CallKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallKeys").field(&self.0.label).finish()
    }
}
