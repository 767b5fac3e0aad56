//! Blobs: large pieces of plain bytes that travel beside an encoded value instead of inside it.
//!
//! The encoding of an [`Array`](crate::Array) of many bytes has only the number of a blob, and so
//! has that of a large text, byte string or list of numbers where shared memory has room. The blob
//! goes to another process of the same host as a reference to shared memory, and to all others
//! behind the value's bytes. Links choose between the two.
//!
//! **Who owns what.** A process writes its blobs into one [arena], a memory file of its own.
//! A range of the arena belongs to a blob until the last [`Blob`] of it is dropped, here or in the
//! processes that borrowed it. A borrower reads the bytes in place. It may pass the blob on: it
//! then lends what it has borrowed, so a lender's blob outlives those that it has lent, unless the
//! lender is killed: for that case borrowers lock blobs that were passed on (`locks.rs`).

mod allocator;
pub mod arena;
mod locks;
mod mapping;
mod ranges;
pub(crate) mod scope;

/// A model test replaces it.
mod sync {
    pub(super) use parking_lot::Mutex;
}

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

pub use self::arena::Unfinished;
pub use self::mapping::{Mapping, MappingId, RangeLock};

/// Values of at least this many bytes are kept apart from the encoding. Below, a copy costs less
/// than the messages that lend a blob and give it back.
pub const MIN_LEN: usize = 32 << 10;

/// Plain bytes that never change. A clone costs one atomic operation.
#[derive(Clone)]
pub struct Blob(Memory);

#[derive(Clone)]
enum Memory {
    /// In this process only, with the copy that others read. Short ones have none.
    Private(Bytes, Option<Arc<SharedCopy>>),
    Shared(Shared),
}

/// The copy of private bytes in shared memory, as long as anything uses it: a value that is sent to
/// many tasks is copied once.
#[derive(Default)]
struct SharedCopy(Mutex<Option<WeakShared>>);

/// A blob in an arena that this does not keep.
struct WeakShared {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
    hold: Weak<dyn Any + Send + Sync>,
}

impl WeakShared {
    fn upgrade(&self) -> Option<Blob> {
        let (mapping, offset, len) = (Arc::clone(&self.mapping), self.offset, self.len);
        let hold = self.hold.upgrade()?;
        Some(Blob(Memory::Shared(Shared { mapping, offset, len, hold })))
    }
}

impl SharedCopy {
    /// Returns the copy of `bytes`, and makes it if there is none.
    fn of(&self, bytes: &[u8]) -> Option<Blob> {
        let mut copy = self.0.lock();
        if let Some(blob) = copy.as_ref().and_then(WeakShared::upgrade) {
            return Some(blob);
        }
        let blob = arena::copy_of(bytes)?;
        *copy = blob.as_shared().map(Shared::downgrade);
        Some(blob)
    }
}

/// A blob in an arena.
#[derive(Clone)]
pub struct Shared {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
    /// Keeps the range from being used again: the range itself in its owner, a loan elsewhere.
    hold: Arc<dyn Any + Send + Sync>,
}

impl Blob {
    /// Makes a blob of memory that this process does not share.
    pub fn private(bytes: Bytes) -> Blob {
        let copy = (bytes.len() >= MIN_LEN).then(Arc::default);
        Blob(Memory::Private(bytes, copy))
    }

    /// Makes a blob of memory that a peer lends. The peer does not write it while `hold` lives.
    ///
    /// Returns `None` if the mapping does not have that range, or if it is in a part of this
    /// process's own arena that no peer can have borrowed.
    pub fn borrowed(
        mapping: Arc<Mapping>,
        offset: usize,
        len: usize,
        hold: Arc<dyn Any + Send + Sync>,
    ) -> Option<Blob> {
        let end = offset.checked_add(len)?;
        let is_lendable = end <= mapping.len() && arena::can_be_lent(&mapping, offset, len);
        is_lendable.then(|| Blob(Memory::Shared(Shared { mapping, offset, len, hold })))
    }

    /// Returns the place in shared memory, if the blob has one.
    pub fn as_shared(&self) -> Option<&Shared> {
        match &self.0 {
            Memory::Shared(shared) => Some(shared),
            Memory::Private(..) => None,
        }
    }

    /// Returns the blob in shared memory, as far as there is room. Copies it if it is not there, or
    /// returns a copy that was made before and is still in use.
    #[must_use]
    pub fn into_shared(self) -> Blob {
        let copy = match &self.0 {
            Memory::Shared(_) => None,
            Memory::Private(bytes, Some(copy)) => copy.of(bytes),
            Memory::Private(bytes, None) => arena::copy_of(bytes),
        };
        copy.unwrap_or(self)
    }

    /// Returns the bytes as `Bytes`, without a copy.
    pub fn to_bytes(&self) -> Bytes {
        match &self.0 {
            Memory::Private(bytes, _) => bytes.clone(),
            Memory::Shared(_) => Bytes::from_owner(self.clone()),
        }
    }
}

impl Shared {
    /// Returns the memory in which the blob is.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns whether a value of type `T` keeps the range in use: what [`Blob::borrowed`] got.
    pub fn is_held_by<T: Any>(&self) -> bool {
        (*self.hold).is::<T>()
    }

    /// Returns the offset of the first byte in the mapping.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    fn downgrade(&self) -> WeakShared {
        let (mapping, hold) = (Arc::clone(&self.mapping), Arc::downgrade(&self.hold));
        WeakShared { mapping, offset: self.offset, len: self.len, hold }
    }

    /// Returns whether the blob has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.offset + self.len;
        f.debug_tuple("Shared").field(&self.mapping.id()).field(&(self.offset..end)).finish()
    }
}

impl Deref for Blob {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Private(bytes, _) => bytes,
            Memory::Shared(shared) => shared.mapping.bytes(shared.offset, shared.len),
        }
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.as_shared().is_some() { "shared" } else { "private" };
        write!(f, "Blob({} bytes, {place})", self.len())
    }
}

/// The blobs of one encoded value, or of one message. It takes one word while there are none.
#[derive(Clone, Debug, Default)]
pub struct Blobs(Option<Arc<Vec<Blob>>>);

impl Blobs {
    /// Returns the number of bytes in all blobs.
    #[inline]
    pub fn total_len(&self) -> usize {
        self.iter().map(|blob| blob.len()).sum()
    }

    /// Returns the number of bytes in blobs outside of shared memory.
    pub fn private_len(&self) -> usize {
        self.iter().filter(|blob| blob.as_shared().is_none()).map(|blob| blob.len()).sum()
    }
}

impl From<Vec<Blob>> for Blobs {
    fn from(blobs: Vec<Blob>) -> Blobs {
        Blobs((!blobs.is_empty()).then(|| Arc::new(blobs)))
    }
}

impl Deref for Blobs {
    type Target = [Blob];

    #[inline]
    fn deref(&self) -> &[Blob] {
        self.0.as_ref().map_or(&[], |blobs| blobs)
    }
}

/// Two lists are equal if they have the same bytes.
impl PartialEq for Blobs {
    fn eq(&self, other: &Blobs) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(one, two)| **one == **two)
    }
}

impl Eq for Blobs {}
