//! Writing: commits to the last segment of outcomes and the last one of slots.

use std::collections::HashSet;
use std::sync::Arc;

use fiber_core::{Error, Result};
use parking_lot::Mutex;

use crate::call::Calls;
use crate::disk;
use crate::folder::Folder;
use crate::format::{Limits, SegmentKind};
use crate::index::IndexEntry;
use crate::record::Head;
use crate::segment::{Place, Segment};
use crate::sidecar::Contents;
use crate::slots::{self, SlotChange, Slots};
use crate::{CallId, OutcomeKind, TaskKey};

/// How much of the last values is moved in one commit.
const MOVED_AT_ONCE: usize = 4 << 20;

/// Writes the records of an open journal.
pub(crate) struct Writer {
    folder: Arc<Folder>,
    journal: [u8; 16],
    limits: Limits,
    calls: Arc<Calls>,
    slots: Arc<Mutex<Slots>>,
    outcome_stream: Stream,
    slot_stream: Stream,
    /// The calls that have a label in the current segment of outcomes.
    labelled: HashSet<CallId>,
    /// The outcomes of this segment.
    outcomes: Vec<IndexEntry>,
    /// The slots that the commit changes.
    changes: Vec<SlotChange>,
    /// The values that have to be moved out of the oldest segment of slots.
    moves: Vec<(String, u64)>,
    /// Why nothing can be written.
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
        limits: Limits,
        calls: Arc<Calls>,
        slots: Arc<Mutex<Slots>>,
        streams: [Stream; 2],
        contents: Contents,
    ) -> Writer {
        let [outcome_stream, slot_stream] = streams;
        Writer {
            folder,
            journal,
            limits,
            calls,
            slots,
            outcome_stream,
            slot_stream,
            labelled: contents.calls.iter().map(|(id, _)| *id).collect(),
            outcomes: contents.outcomes,
            changes: Vec::new(),
            moves: Vec::new(),
            error: None,
        }
    }

    /// Makes it write nothing if there is an error, which says why.
    pub(crate) fn refusing(self, error: Option<Error>) -> Writer {
        Writer { error, ..self }
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
        let Some(place) = place else { return };
        if IndexEntry::has_room_for(place.segment, place.offset) {
            let entry = IndexEntry::new(key, kind.is_failure(), place.segment, place.offset);
            self.outcomes.push(entry);
        } else {
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
        self.streams().any(|segment| segment.is_full(&self.limits))
    }

    /// Completes the commits, and seals segments that are full.
    pub(crate) fn commit(&mut self) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        for stream in [&mut self.outcome_stream, &mut self.slot_stream] {
            let Some(segment) = &mut stream.current else { continue };
            segment.commit()?;
            if segment.is_full(&self.limits) {
                segment.seal()?;
                match stream.kind {
                    SegmentKind::Outcomes => {
                        let label = |id| Some((id, self.calls.get(id)?.label.clone()));
                        let calls = self.labelled.drain().filter_map(label).collect();
                        let outcomes = std::mem::take(&mut self.outcomes);
                        let contents = Contents { calls, outcomes };
                        contents.write(&self.folder, segment.header(), segment.end());
                    }
                    SegmentKind::Slots => {
                        self.slots.lock().set_len(segment.number(), segment.end());
                    }
                }
                stream.current = None;
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
        if let Some(segment) = &self.slot_stream.current {
            slots.set_len(segment.number(), segment.end());
        }
    }

    /// Writes last values of slots again that are in the oldest segment of slots, so that it can be
    /// removed, if most of the slots' records are superseded. Called at the beginning of a commit:
    /// the values are those of the commits before.
    pub(crate) fn move_slots(&mut self) -> Result<()> {
        let mut slots = self.slots.lock();
        let Some(oldest) = self.oldest_of_slots(&slots) else { return Ok(()) };
        if self.moves.is_empty() {
            self.moves = slots.in_segment(oldest);
        }
        let mut moved = 0;
        while moved < MOVED_AT_ONCE
            && let Some((name, slot)) = self.moves.pop()
        {
            let Some((place, file)) = slots.place(&name, slot) else { continue };
            if place.segment != oldest {
                continue;
            }
            // Entries don't wait for the disk while a value is read.
            drop(slots);
            let record = slots::read_put(&self.folder, slot, place, &file)?.1;
            let place = self.append(SegmentKind::Slots, &[], std::iter::once(&record[..]));
            self.changes.push(SlotChange { slots: name, slot, place });
            moved += record.len();
            slots = self.slots.lock();
        }
        Ok(())
    }

    /// Removes the oldest segments of slots, as far as none of their values is a last one. Called
    /// when all commits are on disk.
    pub(crate) fn remove_empty_segments(&mut self) -> Result<()> {
        loop {
            let mut slots = self.slots.lock();
            let Some(oldest) = self.oldest_of_slots(&slots) else { return Ok(()) };
            if !self.moves.is_empty() || !slots.in_segment(oldest).is_empty() {
                return Ok(());
            }
            slots.remove_segment(oldest);
            drop(slots);
            let path = self.folder.segment(SegmentKind::Slots, oldest);
            let removed = disk::remove_file(&path);
            removed.map_err(|error| self.folder.refusal("remove", &path, error))?;
            // If it came back, so would slots whose removal is recorded in the next one.
            self.folder.sync()?;
        }
    }

    /// Returns the segment that is to be removed next.
    fn oldest_of_slots(&self, slots: &Slots) -> Option<u32> {
        let oldest =
            slots.oldest_segment().filter(|_| slots.are_mostly_superseded(&self.limits))?;
        let current = self.slot_stream.current.as_ref().map(Segment::number);
        (Some(oldest) != current).then_some(oldest)
    }

    /// Returns whether commits are not on disk.
    pub(crate) fn is_dirty(&self) -> bool {
        self.streams().any(Segment::is_dirty)
    }

    fn streams(&self) -> impl Iterator<Item = &Segment> {
        [&self.outcome_stream, &self.slot_stream].into_iter().filter_map(|s| s.current.as_ref())
    }
}
