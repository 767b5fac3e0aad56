//! The memory of a stream: a header with the positions of both sides, and a ring buffer.
//!
//! This file has all `unsafe` code of streams. It is sound because:
//! - The memory stays mapped as long as a [`Memory`] lives, and can't shrink, because it is sealed.
//! - Both processes change the header by atomic operations only. Of the ring buffer, the writer
//!   accesses only free bytes and the reader only filled bytes. Each side publishes its position
//!   after it has accessed the bytes.
//! - The process at the other end holds the session's key, and runs this code.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::positions::Positions;

/// The bytes before the ring buffer: one page.
const HEADER_LEN: usize = 4096;
/// The limit of a ring buffer that a peer sends, in bytes.
const MAX_CAPACITY: usize = 1 << 30;

/// The mapped memory of a stream.
pub(super) struct Memory {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}

/// Makes memory for a ring buffer of `capacity` bytes, a power of two.
pub(super) fn create(capacity: usize) -> io::Result<OwnedFd> {
    let file =
        rustix::fs::memfd_create("fiber-stream", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, (HEADER_LEN + capacity) as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

impl Memory {
    /// Maps memory that [`create`] made, here or in another process.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::InvalidData`] for any other file.
    pub(super) fn map(file: impl AsFd) -> io::Result<Memory> {
        // Before the size is read, which could change otherwise.
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        let size = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let capacity = size.saturating_sub(HEADER_LEN);
        if !sealed || !capacity.is_power_of_two() || !(8..=MAX_CAPACITY).contains(&capacity) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file that the peer sent is not the memory of a stream",
            ));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, &file, 0)
        }?;
        let base = NonNull::new(base.cast())
            .ok_or_else(|| io::Error::other("memory was mapped at address 0"))?;
        Ok(Memory { base, capacity })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the positions of both sides.
    pub(super) fn positions(&self) -> &Positions {
        // SAFETY: the mapping starts with an aligned page for it; zeroes are a valid value.
        unsafe { self.base.cast::<Positions>().as_ref() }
    }

    /// Copies bytes to the writer's position. The caller checks that there is room.
    pub(super) fn fill(&self, position: u64, bytes: &[u8]) {
        assert!(bytes.len() <= self.capacity, "there is room for the capacity at most");
        let at = self.index(position);
        let first = bytes.len().min(self.capacity - at);
        let (first, second) = bytes.split_at(first);
        // SAFETY: both pieces lie in the mapping: the first from `at` to its end at most, the
        // second from its start, and together they are at most the capacity. The reader does
        // not touch free bytes.
        unsafe {
            let buffer = self.base.add(HEADER_LEN);
            buffer.add(at).copy_from_nonoverlapping(NonNull::from(first).cast(), first.len());
            buffer.copy_from_nonoverlapping(NonNull::from(second).cast(), second.len());
        }
    }

    /// Returns up to `length` bytes at a position, up to the end of the ring buffer.
    pub(super) fn piece(&self, position: u64, length: usize) -> &[u8] {
        let at = self.index(position);
        let length = length.min(self.capacity - at);
        // SAFETY: the piece lies in the mapping; the writer does not touch filled bytes until the
        // reader, which is borrowed meanwhile, says that it has taken them.
        unsafe { std::slice::from_raw_parts(self.base.add(HEADER_LEN + at).as_ptr(), length) }
    }

    fn index(&self, position: u64) -> usize {
        (position & (self.capacity as u64 - 1)) as usize
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and nothing borrows from it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), HEADER_LEN + self.capacity) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
