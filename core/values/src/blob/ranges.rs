//! Which ranges of an arena are in use.

use std::collections::BTreeMap;

/// Ranges start and end at multiples of this many bytes.
pub(super) const PAGE: usize = 4096;

/// The ranges of an arena of `limit` bytes. All that is above the frontier is free.
#[derive(Debug)]
pub(super) struct Ranges {
    limit: usize,
    frontier: usize,
    used: usize,
    /// Lengths of the free ranges below the frontier, by offset. No two are adjacent.
    free: BTreeMap<usize, usize>,
}

impl Ranges {
    pub(super) fn new(limit: usize) -> Ranges {
        Ranges { limit, frontier: 0, used: 0, free: BTreeMap::new() }
    }

    pub(super) fn frontier(&self) -> usize {
        self.frontier
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes the first range of `len` bytes, raises the frontier if none below it is long enough,
    /// and returns the offset. Returns `None` if the limit is reached.
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let fitting = self.free.iter().find(|(_, free)| **free >= len);
        let offset = match fitting.map(|(offset, free)| (*offset, *free)) {
            Some((offset, free)) => {
                self.free.remove(&offset);
                if free > len {
                    self.free.insert(offset + len, free - len);
                }
                offset
            }
            None => {
                let offset = self.frontier - self.free_at_end();
                let end = offset.checked_add(len).filter(|end| *end <= self.limit)?;
                self.free.remove(&offset);
                self.frontier = end;
                offset
            }
        };
        self.used += len;
        Some(offset)
    }

    /// Frees a range that was taken.
    pub(super) fn free(&mut self, offset: usize, len: usize) {
        self.used -= len;
        let (mut start, mut end) = (offset, offset + len);
        if let Some((before, free)) = self.free.range(..offset).next_back()
            && before + free == offset
        {
            start = *before;
        }
        if let Some(free) = self.free.remove(&end) {
            end += free;
        }
        self.free.insert(start, end - start);
    }

    /// Returns whether all of these bytes are in ranges that were taken.
    pub(super) fn are_taken(&self, offset: usize, len: usize) -> bool {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.frontier) else {
            return false;
        };
        let before = self.free.range(..end).next_back();
        before.is_none_or(|(start, free)| start + free <= offset)
    }

    /// Returns the length of the free range that ends at the frontier.
    pub(super) fn free_at_end(&self) -> usize {
        match self.free.last_key_value() {
            Some((offset, free)) if offset + free == self.frontier => *free,
            _ => 0,
        }
    }

    /// Lowers the frontier to `to`. All that is above is free.
    pub(super) fn lower_frontier(&mut self, to: usize) {
        let start = self.frontier - self.free_at_end();
        assert!((start..=self.frontier).contains(&to), "ranges above the new frontier are in use");
        if self.free.remove(&start).is_some() && to > start {
            self.free.insert(start, to - start);
        }
        self.frontier = to;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_in_use_never_overlap_and_all_memory_comes_back(
            steps in vec((any::<bool>(), 1usize..40, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut ranges = Ranges::new(100 * PAGE);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (take, pages, index) in steps {
                if take || taken.is_empty() {
                    let len = pages * PAGE;
                    let Some(offset) = ranges.take(len) else { continue };
                    prop_assert!(offset + len <= ranges.frontier());
                    prop_assert!(ranges.are_taken(offset, len));
                    prop_assert!(ranges.are_taken(offset + 1, len - 1));
                    for (other, length) in &taken {
                        prop_assert!(offset + len <= *other || other + length <= offset);
                    }
                    taken.push((offset, len));
                } else {
                    let (offset, len) = taken.swap_remove(index.index(taken.len()));
                    ranges.free(offset, len);
                    prop_assert!(!ranges.are_taken(offset, 1));
                    prop_assert!(!ranges.are_taken(offset + len - 1, 1));
                    if ranges.free_at_end() > 20 * PAGE {
                        ranges.lower_frontier(ranges.frontier() - 10 * PAGE);
                    }
                }
                prop_assert_eq!(ranges.used(), taken.iter().map(|(_, len)| len).sum::<usize>());
            }
            for (offset, len) in taken {
                ranges.free(offset, len);
            }
            prop_assert_eq!((ranges.used(), ranges.free_at_end()), (0, ranges.frontier()));
            ranges.lower_frontier(0);
            prop_assert_eq!(ranges.take(100 * PAGE), Some(0));
        }
    }
}
