//! Blobs: large pieces of plain bytes that travel beside an encoded value instead of inside it.
//!
//! The encoding of an [`Array`](crate::Array) of many bytes has only the number of a blob, and so
//! has that of a large text, byte string or list of numbers where shared memory has room. The blob
//! goes to another process of the same host as a reference to shared memory, and to all others
//! behind the value's bytes. Links choose between the two.
//!
//! **Who owns what.** A process writes its blobs into one [arena], a memory file of its own.
//! Beyond the limit of memory, outputs of tasks and elements of queues go to a [file], which is
//! lent in the same way. A range of either belongs to a blob until the last [`Blob`] of it is
//! dropped, here or in the
//! processes that borrowed it. A borrower reads the bytes in place. It may pass the blob on: it
//! then lends what it has borrowed, so a lender's blob outlives those that it has lent, unless the
//! lender is killed: for that case borrowers lock blobs that were passed on (`locks.rs`).

mod allocator;
pub mod arena;
mod away;
pub(crate) mod file;
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
pub use self::away::{Answer, CopyElsewhere, Then, WeakBlob};
use self::away::{Away, Elsewhere};
pub use self::mapping::{Mapping, MappingId, RangeLock};

/// Values of at least this many bytes are kept apart from the encoding. Below, a copy costs less
/// than the messages that lend a blob and give it back.
pub const MIN_LEN: usize = 32 << 10;

/// Plain bytes that never change. A clone costs one atomic operation.
#[derive(Clone)]
pub struct Blob(Memory);

#[derive(Clone)]
enum Memory {
    /// In this process only, with the copies that others read. Short ones have none.
    Private(Bytes, Option<Arc<Copies>>),
    Shared(Shared),
    Away(Arc<Away>),
}

/// The copies of private bytes: a value that is sent to many tasks is copied once.
#[derive(Default)]
struct Copies {
    /// The one in shared memory, as long as anything uses it.
    shared: Mutex<Option<WeakShared>>,
    elsewhere: Elsewhere,
}

/// The number of another machine, for a process that sends blobs there.
pub type Place = u64;

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

impl Copies {
    /// Returns the copy of `bytes` in shared memory, and makes it if there is none.
    fn shared(&self, bytes: &[u8]) -> Option<Blob> {
        let mut copy = self.shared.lock();
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
            Memory::Away(away) => away.here()?.as_shared(),
        }
    }

    /// Returns whether the bytes are in memory of this process that it does not share.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.0, Memory::Private(..))
    }

    /// Returns the length in bytes, also of a blob whose bytes are on another machine.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "the bytes have it")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Private(bytes, _) => bytes.len(),
            Memory::Shared(shared) => shared.len,
            Memory::Away(away) => away.len,
        }
    }

    /// Returns the blob in shared memory, as far as there is room. Copies it if it is not there, or
    /// returns a copy that was made before and is still in use.
    #[must_use]
    pub fn into_shared(self) -> Blob {
        let copy = match &self.0 {
            Memory::Shared(_) => None,
            Memory::Private(bytes, Some(copies)) => copies.shared(bytes),
            Memory::Private(bytes, None) => arena::copy_of(bytes),
            Memory::Away(away) => away.here().cloned().map(Blob::into_shared),
        };
        copy.unwrap_or(self)
    }

    fn elsewhere(&self) -> Option<&Elsewhere> {
        match &self.0 {
            Memory::Private(_, copies) => copies.as_deref().map(|copies| &copies.elsewhere),
            Memory::Shared(_) => None,
            Memory::Away(away) => Some(&away.copies),
        }
    }

    /// Returns whether it may have copies on other machines: not in shared memory, nor if it is
    /// short.
    pub fn may_have_copies(&self) -> bool {
        self.elsewhere().is_some()
    }

    /// Returns what keeps the copy at a place, if it has one there.
    pub fn copy_at(&self, place: Place) -> Option<Arc<dyn CopyElsewhere>> {
        self.elsewhere()?.at(place)
    }

    /// Notes a copy at a place. `copy` is dropped with the last clone of this blob.
    pub fn add_copy(&self, place: Place, copy: Arc<dyn CopyElsewhere>) {
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.add(place, copy);
        }
    }

    /// Returns the copies on other machines, with their places.
    pub fn copies(&self) -> Vec<(Place, Arc<dyn CopyElsewhere>)> {
        self.elsewhere().map(Elsewhere::all).unwrap_or_default()
    }

    /// Returns the places that have a copy.
    pub fn places(&self) -> Vec<Place> {
        self.copies().into_iter().map(|(place, _)| place).collect()
    }

    /// Returns whether it can be read at a place: there is a copy, or this process can send one.
    pub fn is_at(&self, place: Option<Place>) -> bool {
        self.is_here() || place.is_some_and(|place| self.copy_at(place).is_some())
    }

    /// Returns the same bytes without the copies on other machines.
    #[must_use]
    pub fn without_copies(self) -> Blob {
        match self.0 {
            Memory::Private(bytes, _) => Blob::private(bytes),
            Memory::Shared(_) => self,
            Memory::Away(away) => match away.here() {
                Some(here) => here.clone(),
                None => Blob(Memory::Away(away)),
            },
        }
    }

    /// Returns the bytes as `Bytes`, without a copy.
    pub fn to_bytes(&self) -> Bytes {
        match &self.0 {
            Memory::Private(bytes, _) => bytes.clone(),
            Memory::Shared(_) => Bytes::from_owner(self.clone()),
            Memory::Away(away) => away.bytes().to_bytes(),
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
            Memory::Away(away) => away.bytes(),
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
        let place = match &self.0 {
            Memory::Private(..) => "private",
            Memory::Shared(_) => "shared",
            Memory::Away(_) => "elsewhere",
        };
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
        self.iter().map(Blob::len).sum()
    }

    /// Returns the number of bytes in blobs outside of shared memory, without those that are or
    /// were elsewhere: they count by themselves.
    pub fn private_len(&self) -> usize {
        self.iter().filter(|blob| blob.is_private()).map(Blob::len).sum()
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
