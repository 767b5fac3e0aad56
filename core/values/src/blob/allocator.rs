//! The ranges of an arena and the pages behind them, for all threads of a process.
//!
//! `tests/models.rs` runs this file on loom, which explores the orders of its threads' steps.

use super::ranges::Ranges;
use super::sync::Mutex;

/// The pages of an arena's file.
pub(super) trait Pages {
    /// Takes pages from the system. Returns whether there were enough.
    fn provide(&self, start: usize, len: usize) -> bool;

    /// Gives pages back to the system. Returns whether it took them.
    fn give_back(&self, start: usize, len: usize) -> bool;
}

/// Gives out ranges that have pages. A range belongs to its taker until that frees it.
pub(super) struct Allocator<P> {
    ranges: Mutex<Ranges>,
    pages: P,
    /// Returns how much free memory at the end stays, in bytes.
    kept: fn() -> usize,
}

impl<P: Pages> Allocator<P> {
    pub(super) fn new(ranges: Ranges, pages: P, kept: fn() -> usize) -> Allocator<P> {
        Allocator { ranges: Mutex::new(ranges), pages, kept }
    }

    /// Takes a range, and returns its offset.
    pub(super) fn take(&self, len: usize) -> Option<usize> {
        let mut ranges = self.ranges.lock();
        let before = ranges.frontier();
        let offset = ranges.take(len)?;
        let end = offset + len;
        if end > before && !self.pages.provide(before, end - before) {
            ranges.free(offset, len);
            ranges.lower_frontier(before);
            return None;
        }
        Some(offset)
    }

    /// Returns whether all of these bytes are in ranges that were taken.
    pub(super) fn are_taken(&self, offset: usize, len: usize) -> bool {
        self.ranges.lock().are_taken(offset, len)
    }

    /// Frees a range that was taken. Gives pages back if many at the end are free.
    pub(super) fn free(&self, offset: usize, len: usize) {
        let mut ranges = self.ranges.lock();
        ranges.free(offset, len);
        self.trim(&mut ranges);
    }

    /// Gives pages back if more at the end are free than stay by now.
    pub(super) fn give_back(&self) {
        self.trim(&mut self.ranges.lock());
    }

    fn trim(&self, ranges: &mut Ranges) {
        let keep = (self.kept)().max(ranges.used());
        if ranges.free_at_end() > keep {
            let end = ranges.frontier();
            let start = end - ranges.free_at_end() + keep / 2;
            // Under the lock: no other thread takes these pages meanwhile.
            if self.pages.give_back(start, end - start) {
                ranges.lower_frontier(start);
            }
        }
    }
}
