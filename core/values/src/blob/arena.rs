//! The arena of a process: a memory file in which it writes its blobs, and which other processes
//! map to read them.
//!
//! **Ranges.** The arena grows like a heap: ranges below the frontier are in use or free, and the
//! pages of both are there. A blob takes the first free range that is long enough, so memory that
//! was written before is written again: a page that is there costs nothing, and a new one as much
//! as copying to it. When more than `KEPT` bytes below the frontier are free at its end, and more
//! than are in use, the kernel gets those pages back: after large values a moment later.
//!
//! **Pages are there before they are written.** `fallocate` takes them from the kernel. If it
//! fails, the blob stays in private memory and links send its bytes: a shortage costs speed, and is
//! never a SIGBUS.
//!
//! **Nothing stays behind.** The file has no name. The kernel frees it with the last process that
//! has it open or mapped.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::process::{Resource, getrlimit};

use super::allocator::{Allocator, Pages};
use super::mapping::{Mapping, MappingId, read_only};
use super::ranges::{PAGE, Ranges};
use super::{Blob, Memory, Shared, file};
use crate::kept_memory;
use fiber_core::forks;
use fiber_core::value_memory::{self, value_memory};

/// Free memory at the arena's end that stays with the process, in bytes. While large values come,
/// more does.
const KEPT: usize = 64 << 20;

/// The bytes that a process can address.
const ADDRESS_SPACE: u64 = 1 << 47;

/// Whether the links of this process can lend blobs.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// One for the process: an arena is a part of its memory.
static ARENA: OnceLock<Arena> = OnceLock::new();

/// Lets blobs of this process use shared memory, up to the limit of
/// [`value_memory`](mod@value_memory).
pub fn enable(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Returns whether the links of this process can lend blobs.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Gives back the pages that were kept for large values.
pub(crate) fn give_back() {
    if let Some(arena) = ARENA.get() {
        arena.allocator.give_back();
    }
}

fn kept() -> usize {
    kept_memory::kept_or(KEPT)
}

/// Returns a blob with a copy of `bytes` in shared memory, or `None` if this process shares no
/// memory, or has no room.
pub fn copy_of(bytes: &[u8]) -> Option<Blob> {
    let mut unfinished = Unfinished::new(bytes.len())?;
    unfinished.bytes().copy_from_slice(bytes);
    Some(unfinished.finish())
}

/// Returns whether a peer can have borrowed these bytes, if they are this process's own.
pub(super) fn can_be_lent(mapping: &Mapping, offset: usize, len: usize) -> bool {
    let is_taken = |arena: &Arena| {
        arena.mapping.id() == mapping.id() && arena.allocator.are_taken(offset, len)
    };
    !mapping.is_own()
        || ARENA.get().is_some_and(is_taken)
        || file::can_be_lent(mapping, offset, len)
}

struct Arena {
    mapping: Arc<Mapping>,
    allocator: Allocator<OwnedFd>,
}

impl Pages for OwnedFd {
    fn provide(&self, start: usize, len: usize) -> bool {
        let flags = FallocateFlags::empty();
        rustix::fs::fallocate(self, flags, start as u64, len as u64).is_ok()
    }

    fn give_back(&self, start: usize, len: usize) -> bool {
        file::punch(self, start, len).is_ok()
    }
}

/// A range of the arena that is being written.
pub struct Unfinished {
    range: Range,
    len: usize,
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfinished").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A range in use. Dropping it frees the range.
struct Range {
    arena: &'static Arena,
    offset: usize,
    len: usize,
}

impl Unfinished {
    /// Takes a range of `len` bytes, which have any values.
    ///
    /// Returns `None` if this process shares no memory, or has no room.
    pub fn new(len: usize) -> Option<Unfinished> {
        kept_memory::note(len);
        let room = value_memory::room();
        // A fork shares the memory, and does not know what the original does with it.
        if !is_enabled() || forks::is_forked() || len == 0 || len as u64 > room {
            return None;
        }
        let arena = match ARENA.get() {
            Some(arena) => arena,
            // Several threads may try at once; one arena stays. A failure is not kept.
            None => {
                let arena = Arena::new(value_memory().limit).ok()?;
                ARENA.get_or_init(|| arena)
            }
        };
        let range = arena.take(len.checked_next_multiple_of(PAGE)?)?;
        Some(Unfinished { range, len })
    }

    /// Returns the bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.range.arena.mapping.own_bytes(&mut self.range.offset, self.len)
    }

    /// Ends the writing.
    pub fn finish(self) -> Blob {
        let Unfinished { range, len } = self;
        let (mapping, offset) = (Arc::clone(&range.arena.mapping), range.offset);
        Blob(Memory::Shared(Shared { mapping, offset, len, hold: Arc::new(range) }))
    }
}

/// Returns how long a file of at most `limit` bytes may be that processes map.
pub(super) fn longest(limit: u64) -> usize {
    // A longer file would end the process by SIGXFSZ, and a limited address space has to hold more
    // than arenas.
    let longest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let space = getrlimit(Resource::As).current.unwrap_or(ADDRESS_SPACE) / 16;
    let len = usize::try_from(limit.min(longest).min(space)).unwrap_or(usize::MAX);
    len / PAGE * PAGE
}

impl Arena {
    fn new(limit: u64) -> io::Result<Arena> {
        let len = longest(limit);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("fiber-blobs", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        // Other processes get a descriptor that they can't map for writing.
        let id = MappingId(u128::from_le_bytes(fiber_core::random()));
        let mapping = Mapping::own(id, &file, read_only(&file)?)?;
        Ok(Arena { mapping, allocator: Allocator::new(Ranges::new(len), file, kept) })
    }

    /// Takes a range whose pages are there.
    fn take(&'static self, len: usize) -> Option<Range> {
        let offset = self.allocator.take(len)?;
        value_memory::share(len);
        Some(Range { arena: self, offset, len })
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if forks::is_forked() {
            return;
        }
        self.arena.allocator.free(self.offset, self.len);
        value_memory::unshare(self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_reuse_the_memory_of_dropped_ones_and_the_rest_goes_back() {
        value_memory::set_limit(1 << 30);
        enable(true);
        let blob = copy_of(&[7; 100_000]).unwrap();
        let place = blob.as_shared().unwrap().offset();
        assert!(blob.iter().all(|byte| *byte == 7));
        let clone = blob.clone();
        drop(blob);
        assert_eq!(clone.len(), 100_000);
        let other = copy_of(&[8; 100_000]).unwrap();
        assert_ne!(other.as_shared().unwrap().offset(), place, "it is in use");
        assert!(clone.iter().all(|byte| *byte == 7));
        drop((clone, other));
        let again = copy_of(&[9; 100_000]).unwrap();
        assert_eq!(again.as_shared().unwrap().offset(), place);
        drop(again);
        assert_eq!(value_memory().shared, 0);

        let large: Vec<_> = (0..4).map(|_| Unfinished::new(64 << 20).unwrap().finish()).collect();
        assert_eq!(value_memory().shared, 256 << 20);
        drop(large);
        let pages = || {
            let file = rustix::fs::fstat(ARENA.get().unwrap().mapping.file()).unwrap();
            file.st_blocks as usize * 512
        };
        assert!(pages() <= KEPT, "{} bytes are still there", pages());
        // They stay for a second, which may pass meanwhile.
        let stay = |_| {
            drop(Unfinished::new(96 << 20).unwrap());
            pages() >= 96 << 20
        };
        assert!((0..100).any(stay), "they stay for the next one");
        while pages() > KEPT {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(Unfinished::new(2 << 30).is_none(), "it is above the limit");
        assert!(Unfinished::new(usize::MAX).is_none());
    }
}
