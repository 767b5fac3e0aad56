//! Writing: commits to the last segment of outcomes and the last one of slots.

use std::collections::HashSet;
use std::sync::Arc;

use fiber_core::{Error, Result};
use parking_lot::Mutex;

use crate::call::Calls;
use crate::folder::Folder;
use crate::format::SegmentKind;
use crate::index::IndexEntry;
use crate::record::Head;
use crate::segment::{Place, Segment};
use crate::slots::{SlotChange, Slots};
use crate::{CallId, OutcomeKind, TaskKey};

/// Writes the records of an open journal.
pub(crate) struct Writer {
    folder: Arc<Folder>,
    journal: [u8; 16],
    calls: Arc<Calls>,
    slots: Arc<Mutex<Slots>>,
    outcome_stream: Stream,
    slot_stream: Stream,
    /// The calls that have a label in the current segment of outcomes.
    labelled: HashSet<CallId>,
    /// What the commit changes.
    changes: Vec<SlotChange>,
    /// Why no segment could be made.
    error: Option<Error>,
}

/// The segments of a kind.
pub(crate) struct Stream {
    pub(crate) kind: SegmentKind,
    /// The last one, unless it is sealed.
    pub(crate) current: Option<Segment>,
    /// The number of the next one.
    pub(crate) next: u32,
}

impl Writer {
    pub(crate) fn new(
        folder: Arc<Folder>,
        journal: [u8; 16],
        calls: Arc<Calls>,
        slots: Arc<Mutex<Slots>>,
        streams: [Stream; 2],
        labelled: HashSet<CallId>,
    ) -> Writer {
        let [outcome_stream, slot_stream] = streams;
        let (changes, error) = (Vec::new(), None);
        Writer {
            folder,
            journal,
            calls,
            slots,
            outcome_stream,
            slot_stream,
            labelled,
            changes,
            error,
        }
    }

    pub(crate) fn outcome(
        &mut self,
        call: CallId,
        key: TaskKey,
        index: u64,
        kind: OutcomeKind,
        bytes: &[u8],
        blobs: &[&[u8]],
    ) {
        let nothing = std::iter::empty;
        // Each segment says what its calls are, so that it can be read by itself.
        if self.labelled.insert(call)
            && let Some(call_of) = self.calls.get(call)
        {
            let head = Head::call(call, &call_of.label);
            self.append(SegmentKind::Outcomes, &head.encode(nothing()), nothing());
        }
        let value = std::iter::once(bytes).chain(blobs.iter().copied());
        let head = Head::outcome(call, key, index, kind, blobs).encode(value.clone());
        let place = self.append(SegmentKind::Outcomes, &head, value);
        if let Some(place) = place
            && !IndexEntry::has_room_for(place.segment, place.offset)
        {
            self.error = Some(self.folder.error("it has no room for more outcomes"));
        }
    }

    pub(crate) fn put(&mut self, slots: &str, slot: u64, bytes: &[u8], blobs: &[&[u8]]) {
        let value = std::iter::once(bytes).chain(blobs.iter().copied());
        let head = Head::put(slots, slot, blobs).encode(value.clone());
        let place = self.append(SegmentKind::Slots, &head, value);
        self.changes.push(SlotChange { slots: slots.to_owned(), slot, place });
    }

    pub(crate) fn remove(&mut self, slots: &str, slot: u64) {
        let head = Head::removed(slots, slot).encode(std::iter::empty());
        self.append(SegmentKind::Slots, &head, std::iter::empty());
        self.changes.push(SlotChange { slots: slots.to_owned(), slot, place: None });
    }

    /// Adds a record to the current segment of its kind, unless there is an error.
    fn append<'a>(
        &mut self,
        kind: SegmentKind,
        head: &[u8],
        value: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Place> {
        if self.error.is_some() {
            return None;
        }
        let stream = match kind {
            SegmentKind::Outcomes => &mut self.outcome_stream,
            SegmentKind::Slots => &mut self.slot_stream,
        };
        if stream.current.is_none() {
            match Segment::create(&self.folder, self.journal, kind, stream.next) {
                Ok(segment) => {
                    if kind == SegmentKind::Slots {
                        let file = Arc::clone(segment.file());
                        self.slots.lock().add_segment(segment.number(), file);
                    }
                    stream.current = Some(segment);
                    stream.next += 1;
                }
                Err(error) => {
                    self.error = Some(error);
                    return None;
                }
            }
        }
        Some(stream.current.as_mut()?.append(head, value))
    }

    /// Returns whether a segment has as many bytes as it should.
    pub(crate) fn is_full(&self) -> bool {
        self.streams().any(Segment::is_full)
    }

    /// Completes the commits, and seals segments that are full.
    pub(crate) fn commit(&mut self) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        for stream in [&mut self.outcome_stream, &mut self.slot_stream] {
            let Some(segment) = &mut stream.current else { continue };
            segment.commit()?;
            if segment.is_full() {
                segment.seal()?;
                stream.current = None;
                if stream.kind == SegmentKind::Outcomes {
                    self.labelled.clear();
                }
            }
        }
        Ok(())
    }

    /// Waits until all commits are on disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        for stream in [&mut self.outcome_stream, &mut self.slot_stream] {
            stream.current.as_mut().map_or(Ok(()), Segment::sync)?;
        }
        Ok(())
    }

    /// Makes the slots of the commits visible.
    pub(crate) fn publish(&mut self) {
        let mut slots = self.slots.lock();
        self.changes.drain(..).for_each(|change| slots.apply(change));
    }

    /// Returns whether commits are not on disk.
    pub(crate) fn is_dirty(&self) -> bool {
        self.streams().any(Segment::is_dirty)
    }

    fn streams(&self) -> impl Iterator<Item = &Segment> {
        [&self.outcome_stream, &self.slot_stream].into_iter().filter_map(|s| s.current.as_ref())
    }
}
