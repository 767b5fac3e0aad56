//! The slots of a journal, in memory: where their last values are.

mod places;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use fiber_core::Result;

use self::places::Places;
use crate::blocks::{damaged, read_up_to, slices};
use crate::folder::Folder;
use crate::format::{Limits, SegmentKind};
use crate::record::{self, Record, Value};
use crate::segment::Place;
use crate::store::SlotValue;

/// Where the last value of each slot is.
#[derive(Default)]
pub(crate) struct Slots {
    names: HashMap<String, Places>,
    /// The segments that have slots.
    segments: BTreeMap<u32, SlotSegment>,
    /// The length of the records that hold last values.
    live: u64,
}

struct SlotSegment {
    file: Arc<File>,
    len: u64,
}

/// A record's change of a slot.
pub(crate) struct SlotChange {
    pub(crate) slots: String,
    pub(crate) slot: u64,
    /// `None` if the slot was removed.
    pub(crate) place: Option<Place>,
}

impl SlotChange {
    /// Returns the change that the record at this place is, if it is one.
    pub(crate) fn of(record: Record, at: Place) -> Option<SlotChange> {
        match record {
            Record::Put { slots, slot, .. } => Some(SlotChange { slots, slot, place: Some(at) }),
            Record::Removed { slots, slot } => Some(SlotChange { slots, slot, place: None }),
            _ => None,
        }
    }
}

impl Slots {
    /// Returns the names that have slots, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Adds a segment, whose values can be read from then on.
    pub(crate) fn add_segment(&mut self, number: u32, file: Arc<File>) {
        self.segments.insert(number, SlotSegment { file, len: 0 });
    }

    /// Notes a segment's length.
    pub(crate) fn set_len(&mut self, number: u32, len: u64) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.len = len;
        }
    }

    pub(crate) fn remove_segment(&mut self, number: u32) {
        self.segments.remove(&number);
    }

    pub(crate) fn oldest_segment(&self) -> Option<u32> {
        self.segments.keys().next().copied()
    }

    /// Returns whether most records are superseded.
    pub(crate) fn are_mostly_superseded(&self, limits: &Limits) -> bool {
        let all: u64 = self.segments.values().map(|segment| segment.len).sum();
        all > 2 * self.live + limits.superseded
    }

    /// Returns the slots whose last values are in a segment.
    pub(crate) fn in_segment(&self, number: u32) -> Vec<(String, u64)> {
        let in_it = |(name, places): (&String, &Places)| {
            let places = places.iter().filter(|(_, place)| place.segment == number);
            places.map(|(slot, _)| (name.clone(), slot)).collect::<Vec<_>>()
        };
        self.names.iter().flat_map(in_it).collect()
    }

    /// Returns where a slot's last value is, and its file.
    pub(crate) fn place(&self, slots: &str, slot: u64) -> Option<(Place, Arc<File>)> {
        let place = self.names.get(slots)?.get(slot)?;
        Some((place, Arc::clone(&self.segments.get(&place.segment)?.file)))
    }

    pub(crate) fn apply(&mut self, change: SlotChange) {
        let SlotChange { slots, slot, place } = change;
        let before = match place {
            Some(place) => {
                self.live += place.len;
                match self.names.get_mut(&slots) {
                    Some(name) => name.insert(slot, place),
                    None => {
                        self.names.insert(slots, Places::One(slot, place));
                        None
                    }
                }
            }
            None => {
                let name = self.names.get_mut(&slots);
                let before = name.and_then(|name| name.remove(slot));
                if self.names.get(&slots).is_some_and(Places::is_empty) {
                    self.names.remove(&slots);
                }
                before
            }
        };
        self.live -= before.map_or(0, |place| place.len);
    }

    /// Returns where the last values of a name are, and their files, by which they can be read even
    /// if their segments are removed meanwhile.
    pub(crate) fn places(&self, slots: &str) -> Vec<(u64, Place, Arc<File>)> {
        let places = self.names.get(slots).into_iter().flat_map(Places::iter);
        places
            .filter_map(|(slot, place)| {
                Some((slot, place, Arc::clone(&self.segments.get(&place.segment)?.file)))
            })
            .collect()
    }
}

/// Reads the value at a place.
pub(crate) fn read(folder: &Folder, slot: u64, place: Place, file: &File) -> Result<SlotValue> {
    let (value, record) = read_put(folder, slot, place, file)?;
    let (bytes, blobs) = slices(&value, |range| record.slice(range));
    Ok((slot, bytes, blobs))
}

/// Reads the record of a value.
pub(crate) fn read_put(
    folder: &Folder,
    slot: u64,
    place: Place,
    file: &File,
) -> Result<(Value, Bytes)> {
    let path = folder.segment(SegmentKind::Slots, place.segment);
    let mut bytes = vec![0; place.len as usize];
    let read = read_up_to(file, &mut bytes, place.offset);
    bytes.truncate(read.map_err(|error| folder.refusal("read", &path, error))?);
    let record = match record::decode_whole(&bytes) {
        Some(Record::Put { slot: found, value, .. }) if found == slot => {
            Some((value, bytes.into()))
        }
        _ => None,
    };
    record.ok_or_else(|| damaged(folder, SegmentKind::Slots, place.segment, place.offset))
}
