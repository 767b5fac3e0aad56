//! The index of the recorded outcomes, in memory.

use std::collections::HashMap;

use crate::TaskKey;

/// Where an outcome is, and whether it is a failure, in 24 bytes with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexEntry {
    key: TaskKey,
    /// From the highest bit: whether it is a failure, whether it was taken, whether it is the only
    /// one of its key, the segment (21 bits) and the offset (40 bits). Failures have the complement
    /// of the last two.
    order: u64,
}

const FAILURE: u64 = 1 << 63;
const TAKEN: u64 = 1 << 62;
const ONLY: u64 = 1 << 61;
const PLACE: u64 = ONLY - 1;
const OFFSET_BITS: u32 = 40;
const SEGMENT_BITS: u32 = 61 - OFFSET_BITS;

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
        u64::from(segment) < 1 << SEGMENT_BITS && offset < 1 << OFFSET_BITS
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
///
/// A program asks for most of them in the order of recording, so the one after the last that was
/// taken is tried before any search: its entry is in the processor's cache.
pub(crate) struct Index {
    /// In the order of recording.
    entries: Vec<IndexEntry>,
    /// The entries in the order of their keys, and of [`IndexEntry::order`] for one key.
    by_key: Vec<u32>,
    /// Where the keys with each prefix begin in `by_key`. Keys are hashes: each prefix has about as
    /// many.
    starts: Vec<u32>,
    shift: u32,
    /// The place in `by_key` to look at next, of keys with several entries.
    next: HashMap<TaskKey, usize>,
    /// The entry that is likely to be asked for next.
    likely: usize,
}

/// The mean number of entries with one prefix.
const PREFIX_ENTRIES: usize = 8;

impl Index {
    pub(crate) fn new(mut entries: Vec<IndexEntry>) -> Index {
        assert!(u32::try_from(entries.len()).is_ok(), "a journal has less than 2^32 outcomes");
        entries.sort_unstable_by_key(|entry| entry.place());
        let mut sorted: Vec<(u64, u32)> =
            entries.iter().zip(0..).map(|(entry, at)| (prefix(entry.key), at)).collect();
        sorted.sort_unstable_by(|(one, one_at), (other, other_at)| {
            let entry = |at: u32| entries[at as usize];
            one.cmp(other).then_with(|| entry(*one_at).cmp(&entry(*other_at)))
        });
        for at in 0..sorted.len() {
            let key = |at: usize| sorted.get(at).map(|(_, entry)| entries[*entry as usize].key);
            let is_only = key(at) != key(at + 1) && (at == 0 || key(at) != key(at - 1));
            if is_only {
                entries[sorted[at].1 as usize].order |= ONLY;
            }
        }
        let bits = (entries.len() / PREFIX_ENTRIES).max(2).next_power_of_two().ilog2();
        let shift = 64 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for ((prefix, _), at) in sorted.iter().zip(0..) {
            while starts.len() <= (prefix >> shift) as usize {
                starts.push(at);
            }
        }
        starts.resize((1 << bits) + 1, sorted.len() as u32);
        let by_key = sorted.into_iter().map(|(_, at)| at).collect();
        Index { entries, by_key, starts, shift, next: HashMap::new(), likely: 0 }
    }

    /// Takes an outcome, and returns its segment and its offset.
    pub(crate) fn take(&mut self, key: TaskKey, failures: bool) -> Option<(u32, u64)> {
        let at = match self.entries.get(self.likely) {
            Some(likely) if likely.key == key && likely.order & ONLY != 0 => self.likely,
            _ => self.search(key)?,
        };
        let entry = &mut self.entries[at];
        if entry.order & TAKEN != 0 || (entry.is_failure() && !failures) {
            return None;
        }
        entry.order |= TAKEN;
        self.likely = at + 1;
        Some(entry.place())
    }

    /// Returns the first entry of a key that was not taken, or the last one.
    fn search(&mut self, key: TaskKey) -> Option<usize> {
        let start = (prefix(key) >> self.shift) as usize;
        let (start, end) = (self.starts[start] as usize, self.starts[start + 1] as usize);
        let entry = |at: usize| self.entries[self.by_key[at] as usize];
        let first = start
            + self.by_key[start..end].partition_point(|at| self.entries[*at as usize].key < key);
        if first == end || entry(first).key != key {
            return None;
        }
        if entry(first).order & ONLY != 0 {
            return Some(self.by_key[first] as usize);
        }
        let mut at = self.next.get(&key).copied().unwrap_or(first);
        if entry(at).order & TAKEN != 0 && at + 1 < end && entry(at + 1).key == key {
            at += 1;
        }
        self.next.insert(key, at);
        Some(self.by_key[at] as usize)
    }
}

/// Returns the first bytes of a key, in the order of keys.
fn prefix(key: TaskKey) -> u64 {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&key.0[..8]);
    u64::from_be_bytes(prefix)
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
    fn outcomes_are_found_in_any_order() {
        let count = 10_000;
        for step in [1, 7919, count - 1] {
            let entries = (0..count).map(|n| IndexEntry::new(key(n), false, (n / 100) as u32, n));
            let mut index = Index::new(entries.collect());
            for n in (0..count).map(|n| n * step % count) {
                assert_eq!(index.take(key(n), false), Some(((n / 100) as u32, n)));
                assert_eq!(index.take(key(n), false), None);
                assert_eq!(index.take(key(n + count), false), None);
            }
        }
    }

    #[test]
    fn an_empty_index_has_nothing() {
        assert_eq!(Index::new(Vec::new()).take(key(1), true), None);
    }
}
