//! How far the two sides of a stream are, and whether they sleep.
//!
//! `tests/models.rs` runs this file on loom, which explores the orders of both sides' steps.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A side of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Writer,
    Reader,
}

/// A value in a cache line of its own, to avoid false sharing between the two sides.
#[derive(Default)]
#[repr(align(64))]
struct CachePadded<T>(T);

/// The state of a stream that both sides change. All zeroes are that of a new one.
#[derive(Default)]
#[repr(C)]
pub(super) struct Positions {
    written: CachePadded<AtomicU64>,
    read: CachePadded<AtomicU64>,
    writer_sleeps: CachePadded<AtomicU32>,
    reader_sleeps: CachePadded<AtomicU32>,
}

impl Positions {
    /// Returns the number of filled bytes in a ring buffer of `capacity` bytes. `own` is the
    /// position of `side`.
    pub(super) fn filled(&self, side: Side, own: u64, capacity: usize) -> usize {
        let filled = match side {
            Side::Writer => own.wrapping_sub(self.read.0.load(Ordering::Acquire)),
            Side::Reader => self.written.0.load(Ordering::Acquire).wrapping_sub(own),
        };
        // A wrong position of the other side does not lead out of the ring buffer.
        usize::try_from(filled).unwrap_or(usize::MAX).min(capacity)
    }

    /// Publishes the position of `side`. Returns `true` if the other side has to be woken.
    pub(super) fn publish(&self, side: Side, position: u64, capacity: usize) -> bool {
        let (own, sleeps) = match side {
            Side::Writer => (&self.written.0, &self.reader_sleeps.0),
            Side::Reader => (&self.read.0, &self.writer_sleeps.0),
        };
        own.store(position, Ordering::Release);
        // Pairs with the fence in `set_asleep`: one of the two sides sees the store of the other.
        fence(Ordering::SeqCst);
        if sleeps.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // A writer that found no room is woken when half is free, and not for each read.
        let enough = side == Side::Writer || {
            let filled = self.written.0.load(Ordering::Relaxed).wrapping_sub(position);
            filled <= capacity as u64 / 2
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
            Side::Writer => &self.writer_sleeps.0,
            Side::Reader => &self.reader_sleeps.0,
        }
    }
}
