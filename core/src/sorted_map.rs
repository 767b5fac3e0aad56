//! A map in the order of its keys, which mostly grow.

use std::cmp::Ordering;
use std::fmt;

/// A map in the order of its keys, for numbers that are counted up, such as ids.
///
/// A key that is larger than all others is added in constant time, and a key is removed in constant
/// time on average: it stays without its value until half of all keys are such. A key between
/// others moves those after it. A lookup is a binary search.
///
/// The standard library compiles 5,000 lines of LLVM IR or more for each type of `BTreeMap` that
/// entries are added to and removed from. This map has 1,300.
pub struct SortedMap<K, V> {
    /// The keys in order. Those that were removed have no value.
    entries: Vec<(K, Option<Box<V>>)>,
    len: usize,
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Creates an empty map.
    pub const fn new() -> SortedMap<K, V> {
        SortedMap { entries: Vec::new(), len: 0 }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry. Returns the former value of the key.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let value = Box::new(value);
        let place = self.place(&key);
        let former = match self.entries.get_mut(place) {
            Some(entry) if entry.0 == key => entry.1.replace(value),
            _ => {
                self.entries.insert(place, (key, Some(value)));
                None
            }
        };
        self.len += usize::from(former.is_none());
        former.map(|value| *value)
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (found, value) = self.entries.get(self.place(key))?;
        if found == key { value.as_deref() } else { None }
    }

    /// Returns the value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.slot(key)?.as_deref_mut()
    }

    /// Returns whether there is an entry with this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Removes an entry. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.slot(key)?.take()?;
        self.len -= 1;
        if self.len < self.entries.len() / 2 {
            self.entries.retain(|(_, value)| value.is_some());
        }
        Some(*value)
    }

    /// Removes the entries for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.entries.retain(|(key, value)| value.as_ref().is_some_and(|value| keep(key, value)));
        self.len = self.entries.len();
    }

    /// Returns the last entry whose key is at most `key`, to be changed.
    pub fn last_until(&mut self, key: &K) -> Option<(&K, &mut V)> {
        let mut end = self.place(key);
        end += usize::from(self.entries.get(end).is_some_and(|(found, _)| found == key));
        self.entries[..end].iter_mut().rev().find_map(changeable)
    }

    /// Returns the entries in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(key, value)| Some((key, value.as_deref()?)))
    }

    /// Returns the entries in the order of their keys, to be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().filter_map(changeable)
    }

    /// Returns the values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.entries.iter().filter_map(|(_, value)| value.as_deref())
    }

    /// Takes the map apart into its entries, in the order of their keys.
    pub fn into_entries(self) -> impl DoubleEndedIterator<Item = (K, V)> {
        self.entries.into_iter().filter_map(|(key, value)| Some((key, *value?)))
    }

    /// Returns the slot for the value of a key that is here, or was.
    fn slot(&mut self, key: &K) -> Option<&mut Option<Box<V>>> {
        let place = self.place(key);
        self.entries.get_mut(place).filter(|(found, _)| found == key).map(|(_, value)| value)
    }

    /// Returns the place of the first key that is not less than `key`.
    fn place(&self, key: &K) -> usize {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entries[middle].0.cmp(key) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

fn changeable<K, V>((key, value): &mut (K, Option<Box<V>>)) -> Option<(&K, &mut V)> {
    Some((key, value.as_deref_mut()?))
}

impl<K: Ord, V> Default for SortedMap<K, V> {
    fn default() -> SortedMap<K, V> {
        SortedMap::new()
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const KEYS: u8 = 32;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u32),
        Change(u8, u32),
        Remove(u8),
        Retain(u8),
        LastUntil(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..KEYS, any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            1 => (0..KEYS, any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
            4 => (0..KEYS).prop_map(Step::Remove),
            1 => (1_u8..9).prop_map(Step::Retain),
            1 => (0..KEYS).prop_map(Step::LastUntil),
        ]
    }

    proptest! {
        #[test]
        fn a_sorted_map_is_like_one_of_the_standard_library(steps in vec(step(), 0..200)) {
            let (mut map, mut model) = (SortedMap::new(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        prop_assert_eq!(map.insert(key, value), model.insert(key, value));
                    }
                    Step::Change(key, value) => {
                        let found = map.get_mut(&key).map(|found| std::mem::replace(found, value));
                        let other = model.get_mut(&key);
                        prop_assert_eq!(found, other.map(|found| std::mem::replace(found, value)));
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(map.remove(&key), model.remove(&key));
                        prop_assert_eq!(map.remove(&key), None);
                    }
                    Step::Retain(part) => {
                        map.retain(|key, _| key % part == 0);
                        model.retain(|key, _| key % part == 0);
                    }
                    Step::LastUntil(key) => {
                        let found = map.last_until(&key).map(|(key, value)| (*key, *value));
                        let last = model.range(..=key).next_back();
                        prop_assert_eq!(found, last.map(|(key, value)| (*key, *value)));
                    }
                }
                prop_assert!(map.iter().eq(&model) && map.iter().rev().eq(model.iter().rev()));
                prop_assert!(map.values().eq(model.values()));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert!((0..KEYS).all(|key| map.get(&key) == model.get(&key)));
                prop_assert!(map.entries.len() <= 2 * map.len() + 1, "removed keys stay");
            }
            map.iter_mut().for_each(|(_, value)| *value /= 2);
            model.values_mut().for_each(|value| *value /= 2);
            prop_assert_eq!(format!("{map:?}"), format!("{model:?}"));
            prop_assert!(map.into_entries().eq(model));
        }
    }
}
