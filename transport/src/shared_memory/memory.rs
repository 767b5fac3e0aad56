//! The memory of a stream: a head with the positions of both sides, and the bytes between them in a
//! circle.
//!
//! All `unsafe` of this is here. What makes it sound: the memory is mapped as long as a [`Memory`]
//! lives, and can't shrink (it is sealed); all that both processes change is atomic, but for the
//! bytes, of which the writer touches only those that are free and the reader only those that are
//! filled, by the positions, which are published after. Whoever is at the other end holds the
//! session's key, and runs this very code.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes before the circle: one page.
const HEAD: usize = 4096;
/// The largest circle that is accepted from a peer.
const MOST: usize = 1 << 30;

/// A value with a cache line to itself, so that the two sides don't hinder each other.
#[repr(align(64))]
struct Line<T>(T);

#[repr(C)]
struct Head {
    written: Line<AtomicU64>,
    taken: Line<AtomicU64>,
    writer_sleeps: Line<AtomicU32>,
    reader_sleeps: Line<AtomicU32>,
}

/// Which end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Writer,
    Reader,
}

/// The mapped memory of a stream.
pub(super) struct Memory {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}

/// Makes memory for a circle of `capacity` bytes, a power of two.
pub(super) fn create(capacity: usize) -> io::Result<OwnedFd> {
    let file =
        rustix::fs::memfd_create("fiber-stream", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, (HEAD + capacity) as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

impl Memory {
    /// Maps what [`create`] made, here or in another process.
    ///
    /// # Errors
    /// What the system says, or that it is not such memory.
    pub(super) fn map(file: impl AsFd) -> io::Result<Memory> {
        let size = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let capacity = size.saturating_sub(HEAD);
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if !sealed || !capacity.is_power_of_two() || !(8..=MOST).contains(&capacity) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "what the peer sent is not the memory of a stream",
            ));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
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

    fn head(&self) -> &Head {
        // SAFETY: the mapping begins with a page for it, which is aligned; zeroes are a valid head.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    /// Bytes between the writer's position and the reader's, one of which is `own`.
    pub(super) fn filled(&self, side: Side, own: u64) -> usize {
        let filled = match side {
            Side::Writer => own.wrapping_sub(self.head().taken.0.load(Ordering::Acquire)),
            Side::Reader => self.head().written.0.load(Ordering::Acquire).wrapping_sub(own),
        };
        // Whatever the other side says, this stays within the circle.
        usize::try_from(filled).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// Copies bytes to where the writer is. There has to be room for them.
    pub(super) fn fill(&self, position: u64, bytes: &[u8]) {
        assert!(bytes.len() <= self.capacity, "there is room for no more than the circle");
        let at = self.index(position);
        let first = bytes.len().min(self.capacity - at);
        let (first, second) = bytes.split_at(first);
        // SAFETY: both pieces lie in the mapping: the first from `at` to its end at most, the
        // second from its start, and they are no longer than the circle together. The reader does
        // not touch free bytes.
        unsafe {
            let circle = self.base.add(HEAD);
            circle.add(at).copy_from_nonoverlapping(NonNull::from(first).cast(), first.len());
            circle.copy_from_nonoverlapping(NonNull::from(second).cast(), second.len());
        }
    }

    /// Up to `length` bytes at a position, as far as they lie in one piece.
    pub(super) fn piece(&self, position: u64, length: usize) -> &[u8] {
        let at = self.index(position);
        let length = length.min(self.capacity - at);
        // SAFETY: the piece lies in the mapping; the writer does not touch filled bytes until the
        // reader, which is borrowed meanwhile, says that it has taken them.
        unsafe { std::slice::from_raw_parts(self.base.add(HEAD + at).as_ptr(), length) }
    }

    fn index(&self, position: u64) -> usize {
        (position & (self.capacity as u64 - 1)) as usize
    }

    /// Tells the other side how far this one is. `true` if the other one has to be woken.
    pub(super) fn publish(&self, side: Side, position: u64) -> bool {
        let head = self.head();
        let (own, sleeps) = match side {
            Side::Writer => (&head.written.0, &head.reader_sleeps.0),
            Side::Reader => (&head.taken.0, &head.writer_sleeps.0),
        };
        own.store(position, Ordering::Release);
        // Against that of `set_asleep`: one of the two sides sees what the other has done.
        fence(Ordering::SeqCst);
        if sleeps.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // A writer that has filled everything is woken when half is free, not for each piece that
        // is taken.
        let enough = side == Side::Writer || {
            let filled = head.written.0.load(Ordering::Relaxed).wrapping_sub(position);
            filled <= self.capacity as u64 / 2
        };
        enough && sleeps.swap(0, Ordering::Relaxed) != 0
    }

    pub(super) fn set_asleep(&self, side: Side) {
        self.sleeps(side).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(super) fn set_awake(&self, side: Side) {
        self.sleeps(side).store(0, Ordering::Relaxed);
    }

    fn sleeps(&self, side: Side) -> &AtomicU32 {
        match side {
            Side::Writer => &self.head().writer_sleeps.0,
            Side::Reader => &self.head().reader_sleeps.0,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and nothing borrows from it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), HEAD + self.capacity) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
