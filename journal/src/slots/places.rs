//! The slots of one name.

use std::collections::BTreeMap;

use crate::segment::Place;

/// Where the last values of a name's slots are. Most names have one slot, for which a tree would
/// take ten times the room.
pub(super) enum Places {
    One(u64, Place),
    Any(BTreeMap<u64, Place>),
}

impl Places {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Places::Any(places) if places.is_empty())
    }

    pub(super) fn get(&self, slot: u64) -> Option<Place> {
        match self {
            Places::One(known, place) => (*known == slot).then_some(*place),
            Places::Any(places) => places.get(&slot).copied(),
        }
    }

    /// Sets the place of a slot. Returns that of its last value.
    pub(super) fn insert(&mut self, slot: u64, place: Place) -> Option<Place> {
        match self {
            Places::One(known, before) if *known == slot => Some(std::mem::replace(before, place)),
            Places::One(known, before) => {
                *self = Places::Any(BTreeMap::from([(*known, *before), (slot, place)]));
                None
            }
            Places::Any(places) => places.insert(slot, place),
        }
    }

    pub(super) fn remove(&mut self, slot: u64) -> Option<Place> {
        match self {
            Places::One(known, place) if *known == slot => {
                let place = *place;
                *self = Places::Any(BTreeMap::new());
                Some(place)
            }
            Places::One(..) => None,
            Places::Any(places) => places.remove(&slot),
        }
    }

    /// Returns the slots and their places, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Place)> {
        let (one, any) = match self {
            Places::One(slot, place) => (Some((*slot, *place)), None),
            Places::Any(places) => (None, Some(places)),
        };
        let any = any.into_iter().flatten().map(|(slot, place)| (*slot, *place));
        one.into_iter().chain(any)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: u64) -> Place {
        Place { segment: 0, offset, len: 1 }
    }

    proptest! {
        #[test]
        fn places_are_those_of_a_tree(
            first in 0u64..4,
            changes in prop::collection::vec((0u64..4, any::<bool>()), 0..12),
        ) {
            let mut places = Places::One(first, at(100));
            let mut tree = BTreeMap::from([(first, at(100))]);
            for (number, (slot, is_put)) in (0..).zip(changes) {
                let (before, expected) = if is_put {
                    (places.insert(slot, at(number)), tree.insert(slot, at(number)))
                } else {
                    (places.remove(slot), tree.remove(&slot))
                };
                let offset = |place: Option<Place>| place.map(|place| place.offset);
                prop_assert_eq!(offset(before), offset(expected));
                prop_assert_eq!(places.is_empty(), tree.is_empty());
                prop_assert_eq!(offset(places.get(slot)), offset(tree.get(&slot).copied()));
                let all = |(slot, place): (u64, Place)| (slot, place.offset);
                let in_tree = tree.iter().map(|(slot, place)| (*slot, place.offset));
                let expected: Vec<_> = in_tree.collect();
                prop_assert_eq!(places.iter().map(all).collect::<Vec<_>>(), expected);
            }
        }
    }
}
