//! A set of bounded size.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// The values that were added last, each once.
pub(crate) struct Recent<T> {
    order: VecDeque<T>,
    known: HashSet<T>,
    most: usize,
}

impl<T: Copy + Eq + Hash> Recent<T> {
    /// Returns a set that keeps at most `most` values.
    pub(super) fn new(most: usize) -> Recent<T> {
        Recent { order: VecDeque::new(), known: HashSet::new(), most }
    }

    /// Adds a value. Returns the value that it displaces.
    pub(super) fn push(&mut self, value: T) -> Option<T> {
        if !self.known.insert(value) {
            return None;
        }
        self.order.push_back(value);
        let disrupted = if self.order.len() > self.most { self.order.pop_front() } else { None };
        disrupted.inspect(|disrupted| {
            self.known.remove(disrupted);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_value_is_displaced_and_each_value_counts_once() {
        let mut recent = Recent::new(2);
        assert_eq!([1, 2, 2, 1].map(|value| recent.push(value)), [None; 4]);
        assert_eq!([3, 4, 1].map(|value| recent.push(value)), [Some(1), Some(2), Some(3)]);
    }
}
