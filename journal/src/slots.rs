//! The slots of a journal, in memory: where their last values are.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;

use fiber_core::Result;

use crate::blocks::{damaged, read_record, slices};
use crate::folder::Folder;
use crate::format::SegmentKind;
use crate::record::{self, Record};
use crate::segment::Place;
use crate::store::SlotValue;

/// Where the last value of each slot is.
#[derive(Default)]
pub(crate) struct Slots {
    names: HashMap<String, BTreeMap<u64, Place>>,
    /// The segments that have slots.
    files: HashMap<u32, Arc<File>>,
    /// The length of the records that hold last values.
    live: u64,
}

/// A record's change of a slot.
pub(crate) struct SlotChange {
    pub(crate) slots: String,
    pub(crate) slot: u64,
    /// `None` if the slot was removed.
    pub(crate) place: Option<Place>,
}

impl Slots {
    /// Adds a segment, whose values can be read from then on.
    pub(crate) fn add_segment(&mut self, number: u32, file: Arc<File>) {
        self.files.insert(number, file);
    }

    pub(crate) fn apply(&mut self, change: SlotChange) {
        let SlotChange { slots, slot, place } = change;
        let before = match place {
            Some(place) => {
                self.live += place.len;
                match self.names.get_mut(&slots) {
                    Some(name) => name.insert(slot, place),
                    None => {
                        self.names.insert(slots, BTreeMap::from([(slot, place)]));
                        None
                    }
                }
            }
            None => {
                let name = self.names.get_mut(&slots);
                let before = name.and_then(|name| name.remove(&slot));
                if self.names.get(&slots).is_some_and(BTreeMap::is_empty) {
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
        let name = self.names.get(slots).into_iter().flatten();
        name.filter_map(|(slot, place)| {
            Some((*slot, *place, Arc::clone(self.files.get(&place.segment)?)))
        })
        .collect()
    }
}

/// Reads the value at a place.
pub(crate) fn read(folder: &Folder, slot: u64, place: Place, file: &File) -> Result<SlotValue> {
    let path = folder.segment(SegmentKind::Slots, place.segment);
    let record = read_record(file, place.offset);
    let record = record.map_err(|error| folder.refusal("read", &path, error))?;
    let value = record.as_ref().and_then(|bytes| match record::decode_whole(bytes)? {
        Record::Put { slot: found, value, .. } if found == slot => {
            Some(slices(&value, |range| bytes.slice(range)))
        }
        _ => None,
    });
    let value =
        value.ok_or_else(|| damaged(folder, SegmentKind::Slots, place.segment, place.offset))?;
    Ok((slot, value.0, value.1))
}
