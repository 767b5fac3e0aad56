//! The index of the recorded outcomes, in memory.

use std::collections::HashMap;

use crate::TaskKey;

/// Where an outcome is, and whether it is a failure, in 24 bytes with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexEntry {
    key: TaskKey,
    /// From the highest bit: whether it is a failure, whether it was taken, the segment (22 bits)
    /// and the offset (40 bits). Failures have the complement of the last two.
    order: u64,
}

const FAILURE: u64 = 1 << 63;
const TAKEN: u64 = 1 << 62;
const PLACE: u64 = TAKEN - 1;
const OFFSET_BITS: u32 = 40;

impl IndexEntry {
    pub(crate) const LEN: usize = 24;

    /// Makes the entry of an outcome in this segment at this offset.
    pub(crate) fn new(key: TaskKey, is_failure: bool, segment: u32, offset: u64) -> IndexEntry {
        let place = (u64::from(segment) << OFFSET_BITS | offset) & PLACE;
        // Results come first, in the order of recording, then failures, the last one first: it is
        // that of the last run.
        let order = if is_failure { FAILURE | (PLACE - place) } else { place };
        IndexEntry { key, order }
    }

    /// Returns whether a place can be in an index.
    pub(crate) fn has_room_for(segment: u32, offset: u64) -> bool {
        u64::from(segment) < 1 << (62 - OFFSET_BITS) && offset < 1 << OFFSET_BITS
    }

    fn is_failure(self) -> bool {
        self.order & FAILURE != 0
    }

    /// Returns the segment and the offset.
    fn place(self) -> (u32, u64) {
        let place = self.order & PLACE;
        let place = if self.is_failure() { PLACE - place } else { place };
        ((place >> OFFSET_BITS) as u32, place & ((1 << OFFSET_BITS) - 1))
    }

    pub(crate) fn encode(self) -> [u8; IndexEntry::LEN] {
        let mut bytes = [0; IndexEntry::LEN];
        bytes[..16].copy_from_slice(&self.key.0);
        bytes[16..].copy_from_slice(&self.order.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; IndexEntry::LEN]) -> IndexEntry {
        let mut key = [0; 16];
        key.copy_from_slice(&bytes[..16]);
        IndexEntry { key: TaskKey(key), order: crate::format::u64_at(bytes, 16) }
    }
}

/// The outcomes that were recorded when the journal was opened.
pub(crate) struct Index {
    /// In ascending order.
    entries: Vec<IndexEntry>,
    /// Where the keys with each prefix begin. Keys are hashes: each prefix has about as many.
    starts: Vec<usize>,
    shift: u32,
    /// The entry to look at next, of keys with several entries.
    next: HashMap<TaskKey, usize>,
}

/// The mean number of entries with one prefix.
const PREFIX_ENTRIES: usize = 8;

impl Index {
    pub(crate) fn new(mut entries: Vec<IndexEntry>) -> Index {
        entries.sort_unstable();
        let bits = (entries.len() / PREFIX_ENTRIES).max(2).next_power_of_two().ilog2();
        let mut index =
            Index { entries, starts: Vec::new(), shift: 64 - bits, next: HashMap::new() };
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (at, entry) in index.entries.iter().enumerate() {
            let prefix = index.prefix(entry.key);
            while starts.len() <= prefix {
                starts.push(at);
            }
        }
        starts.resize((1 << bits) + 1, index.entries.len());
        index.starts = starts;
        index
    }

    fn prefix(&self, key: TaskKey) -> usize {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&key.0[..8]);
        (u64::from_be_bytes(prefix) >> self.shift) as usize
    }

    /// Takes an outcome, and returns its segment and its offset.
    pub(crate) fn take(&mut self, key: TaskKey, failures: bool) -> Option<(u32, u64)> {
        let prefix = self.prefix(key);
        let (start, end) = (self.starts[prefix], self.starts[prefix + 1]);
        let first = start + self.entries[start..end].partition_point(|entry| entry.key < key);
        let is_key = |at: usize| self.entries.get(at).is_some_and(|entry| entry.key == key);
        if !is_key(first) {
            return None;
        }
        let at = if self.entries[first].order & TAKEN == 0 {
            first
        } else {
            self.next.get(&key).copied().unwrap_or(first + 1)
        };
        if !is_key(at) || (self.entries[at].is_failure() && !failures) {
            return None;
        }
        if at > first {
            self.next.insert(key, at + 1);
        }
        self.entries[at].order |= TAKEN;
        Some(self.entries[at].place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> TaskKey {
        let hash = blake3::hash(&number.to_le_bytes());
        let mut key = TaskKey([0; 16]);
        key.0.copy_from_slice(&hash.as_bytes()[..16]);
        key
    }

    #[test]
    fn an_entry_has_24_bytes() {
        assert_eq!(size_of::<IndexEntry>(), 24);
    }

    #[test]
    fn each_outcome_is_taken_once_in_the_order_of_recording() {
        let entries = (0..1000).map(|n| IndexEntry::new(key(n % 100), false, 3, n)).collect();
        let mut index = Index::new(entries);
        for n in 0..1000 {
            assert_eq!(index.take(key(n % 100), false), Some((3, n)));
        }
        for n in 0..200 {
            assert_eq!(index.take(key(n), true), None);
        }
    }

    #[test]
    fn results_come_before_failures_and_the_last_failure_first() {
        let failed = [true, false, true, false];
        let entries = failed.iter().zip(1..).map(|(f, at)| IndexEntry::new(key(7), *f, 1, at));
        let mut index = Index::new(entries.collect());
        assert_eq!(index.take(key(7), false), Some((1, 2)));
        assert_eq!(index.take(key(7), true), Some((1, 4)));
        assert_eq!(index.take(key(7), false), None);
        assert_eq!(index.take(key(7), true), Some((1, 3)));
        assert_eq!(index.take(key(7), true), Some((1, 1)));
        assert_eq!(index.take(key(7), true), None);
    }

    #[test]
    fn a_million_equal_keys_are_not_quadratic() {
        let count = 1_000_000;
        let entries = (0..count).map(|n| IndexEntry::new(key(1), false, 0, n)).collect();
        let mut index = Index::new(entries);
        for n in 0..count {
            assert_eq!(index.take(key(1), false), Some((0, n)));
        }
        assert_eq!(index.take(key(1), true), None);
    }

    #[test]
    fn an_empty_index_has_nothing() {
        assert_eq!(Index::new(Vec::new()).take(key(1), true), None);
    }
}
