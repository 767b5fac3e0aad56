//! The mapped memory of an arena, or of a file of blobs. This file has all `unsafe` code of blobs.
//!
//! It is sound because:
//! - The memory stays mapped as long as its [`Mapping`] lives, and can't shrink: an arena is
//!   sealed. A [file](super::file) has no name, and the one descriptor that can change its length is that
//!   of its owner, which does not. Pages of ranges in use are there (see [arena](super::arena)), or
//!   are read from the disk.
//! - The owner of an arena writes only to a range that it has taken from the free ones, through a
//!   unique reference, and before it makes a blob of the range.
//!   A file's range is written by `write`, before it is read through the mapping.
//! - It frees a range when the last blob of it is dropped. A blob that was lent to another process
//!   is dropped here only after that process has given it back, or has ended and no process to
//!   which it has passed the blob on has a [lock](RangeLock) on it. So no process reads a range
//!   that is being written. The receiver of a blob that was passed on locks the range, and then
//!   checks that the lender's socket is open. A process closes its sockets before it has ended for
//!   others, so either the receiver finds it closed and reads nothing, or the owner finds the lock.
//! - All other processes map the memory without the right to write.
//! - They are processes of one session, which hold its key and run this code.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustix::fs::{FileType, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::locks::{self, Locks};

/// Identifies an arena, or a file of blobs, among all processes of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(pub u128);

/// The arenas that are mapped in this process.
static KNOWN: LazyLock<Mutex<HashMap<MappingId, Weak<Mapping>>>> = LazyLock::new(Mutex::default);

/// The memory of an arena: this process's own, or another one's.
pub struct Mapping {
    id: MappingId,
    /// It can't be mapped for writing.
    file: OwnedFd,
    len: usize,
    base: NonNull<u8>,
    owner: Owner,
    locks: Mutex<Locks>,
}

/// The owner of the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This process, which writes it through the mapping.
    ThisWrites,
    /// This process, which only reads it there.
    ThisReads,
    Other,
}

/// Shows the owner of an arena that this process reads a range of it, also when those through which
/// it came here have ended.
#[derive(Debug)]
pub struct RangeLock {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        self.mapping.locks.lock().remove(self.offset, self.len);
    }
}

// SAFETY: the mapping belongs to the process, not to a thread; shared references only read, but for
// `own_bytes`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps this process's arena.
    pub(super) fn own(
        id: MappingId,
        writable: impl AsFd,
        read_only: OwnedFd,
    ) -> io::Result<Arc<Mapping>> {
        let len = size(&writable)?;
        let base = map(&writable, len, ProtFlags::READ | ProtFlags::WRITE)?;
        let (file, owner, locks) = (read_only, Owner::ThisWrites, Mutex::default());
        let mapping = Arc::new(Mapping { id, file, len, base, owner, locks });
        KNOWN.lock().insert(id, Arc::downgrade(&mapping));
        Ok(mapping)
    }

    /// Maps this process's file of blobs. The descriptor can't write.
    pub(super) fn own_file(id: MappingId, file: OwnedFd) -> io::Result<Arc<Mapping>> {
        let len = size(&file)?;
        let base = map(&file, len, ProtFlags::READ)?;
        let (owner, locks) = (Owner::ThisReads, Mutex::default());
        let mapping = Arc::new(Mapping { id, file, len, base, owner, locks });
        KNOWN.lock().insert(id, Arc::downgrade(&mapping));
        Ok(mapping)
    }

    /// Maps the memory of another process, which sent it. It is mapped once a process.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::InvalidData`] for a file that is not an arena.
    pub fn adopt(id: MappingId, file: OwnedFd) -> io::Result<Arc<Mapping>> {
        let mut known = KNOWN.lock();
        if let Some(mapping) = known.get(&id).and_then(Weak::upgrade) {
            return Ok(mapping);
        }
        let len = size(&file)?;
        let base = map(&file, len, ProtFlags::READ)?;
        let (owner, locks) = (Owner::Other, Mutex::default());
        let mapping = Arc::new(Mapping { id, file, len, base, owner, locks });
        known.retain(|_, mapping| mapping.strong_count() > 0);
        known.insert(id, Arc::downgrade(&mapping));
        Ok(mapping)
    }

    /// Returns the arena's identity.
    pub fn id(&self) -> MappingId {
        self.id
    }

    /// Returns the descriptor to send to other processes.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns whether this is the memory of this process.
    pub fn is_own(&self) -> bool {
        self.owner != Owner::Other
    }

    /// Locks a range that another process than its owner has lent.
    ///
    /// # Errors
    /// The system's error, as for lack of a descriptor or of memory for locks.
    pub fn lock(self: &Arc<Mapping>, offset: usize, len: usize) -> io::Result<RangeLock> {
        self.locks.lock().add(&self.file, offset, len)?;
        Ok(RangeLock { mapping: Arc::clone(self), offset, len })
    }

    /// Returns whether a process has a lock on the range. For the memory of another process, the
    /// locks of this one do not count.
    pub fn is_locked(&self, offset: usize, len: usize) -> bool {
        let locks = self.locks.lock();
        let file = if self.is_own() { None } else { locks.file() };
        locks::is_locked(file.unwrap_or(&self.file), offset, len)
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no arena is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns bytes of a range in use: [`Blob`](super::Blob) keeps it in use.
    #[inline]
    pub(super) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset, "a blob is within its arena");
        // SAFETY: the range is inside the mapping, and no process writes to it: see above.
        unsafe { std::slice::from_raw_parts(self.base.add(offset).as_ptr(), len) }
    }

    /// Returns bytes of a range that this process writes. `offset` is the range's own, so its
    /// borrow is the range's.
    pub(super) fn own_bytes<'a>(&self, offset: &'a mut usize, len: usize) -> &'a mut [u8] {
        let start = *offset;
        assert!(self.owner == Owner::ThisWrites, "only the owner of an arena writes to it");
        assert!(start <= self.len && len <= self.len - start, "a blob is within its arena");
        // SAFETY: the range is inside the mapping and taken; its holder is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(start).as_ptr(), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `map`, and no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("id", &self.id).field("len", &self.len).finish()
    }
}

/// Returns the size of a file that can't shrink.
fn size(file: impl AsFd) -> io::Result<usize> {
    // Other files than memory files have no seals: EINVAL. Before the size is read, which could
    // change otherwise.
    let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
    let stat = rustix::fs::fstat(&file)?;
    let size = usize::try_from(stat.st_size).unwrap_or(0);
    let can_shrink = || -> io::Result<bool> {
        let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let access = rustix::fs::fcntl_getfl(&file)? & OFlags::RWMODE;
        Ok(!is_plain || stat.st_nlink > 0 || access != OFlags::RDONLY)
    };
    if size == 0 || (!seals.contains(SealFlags::SHRINK) && can_shrink()?) {
        let problem = "the file that the peer sent is not memory for blobs";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(size)
}

fn map(file: impl AsFd, len: usize, protection: ProtFlags) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses the address of the new mapping.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }?;
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("memory was mapped at address 0"))
}

/// Opens a file once more, for reading alone.
pub(super) fn read_only(file: impl AsFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
