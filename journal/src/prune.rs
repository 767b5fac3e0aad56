//! Removing from a journal what is not needed any more.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fiber_core::{Error, Result};

use crate::blocks::{damaged, read_record};
use crate::disk;
use crate::folder::{Folder, UNFINISHED};
use crate::format::{Limits, SegmentHeader, SegmentKind};
use crate::lock::Lock;
use crate::opening::{OpenError, open_segment, refuse_holes};
use crate::record::Record;
use crate::scan::{Scanned, scan};
use crate::segment::{Place, Segment};
use crate::slots::{self, SlotChange, Slots};
use crate::{CallLabel, OutcomeKind};

/// The content to remove. Superseded values of slots always are removed.
pub struct Prune<'a> {
    /// The calls whose outcomes are removed.
    pub calls: &'a dyn Fn(&CallLabel) -> bool,
    /// Whether the failures of the other calls are removed.
    pub failures: bool,
    /// Whether what can't be read is removed. Otherwise it is an error.
    pub damaged: bool,
}

impl std::fmt::Debug for Prune<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Prune { failures, damaged, .. } = self;
        f.debug_struct("Prune").field("failures", failures).field("damaged", damaged).finish()
    }
}

/// The removed content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of outcomes.
    pub outcomes: u64,
    /// The number of superseded values and removals of slots.
    pub slots: u64,
    /// The number of bytes that could not be read.
    pub damaged: u64,
    /// The size of the files in bytes before.
    pub size_before: u64,
    /// The size of the files in bytes afterwards.
    pub size: u64,
}

/// Removes from the journal in this folder what is not needed any more. Segments are written again
/// without it, and replaced when they are on disk: at any time the journal is whole.
///
/// # Errors
/// [`Error::Journal`] if a process has the journal open, if the system refuses something, or if the
/// journal is damaged and `damaged` is not set.
pub fn prune(path: &Path, what: &Prune<'_>) -> Result<Pruned> {
    let folder = Arc::new(Folder::open(path)?);
    let _lock = Lock::take(&folder)?;
    folder.remove_unfinished()?;
    let mut pruned = Pruned { size_before: folder.size()?, ..Pruned::default() };
    let mut pruning = Pruning { folder: &folder, what, pruned: &mut pruned };
    pruning.outcomes()?;
    pruning.slots()?;
    pruned.size = folder.size()?;
    Ok(pruned)
}

struct Pruning<'a> {
    folder: &'a Arc<Folder>,
    what: &'a Prune<'a>,
    pruned: &'a mut Pruned,
}

/// A segment, and what it has.
struct Read {
    number: u32,
    file: Arc<File>,
    header: SegmentHeader,
    scanned: Scanned,
    /// The records that can be read.
    records: Vec<(Place, Record)>,
}

impl Pruning<'_> {
    fn outcomes(&mut self) -> Result<()> {
        let numbers = self.folder.segments(SegmentKind::Outcomes)?;
        for number in &numbers {
            let has_successor = Some(number) != numbers.last();
            if let Some(read) = self.read(SegmentKind::Outcomes, *number, has_successor)? {
                self.prune_outcomes(&read)?;
            }
        }
        Ok(())
    }

    /// Reads a segment. One that can't be read is removed, if that is wanted.
    fn read(
        &mut self,
        kind: SegmentKind,
        number: u32,
        has_successor: bool,
    ) -> Result<Option<Read>> {
        let path = self.folder.segment(kind, number);
        let (file, header) = match open_segment(self.folder, kind, number, false) {
            Ok(opened) => opened,
            Err(OpenError::Damaged(_)) if self.what.damaged => {
                self.pruned.damaged += fs::metadata(&path).map_or(0, |data| data.len());
                self.remove(kind, number)?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let mut records = Vec::new();
        let scanned = scan(&file, &header, has_successor, |(offset, len, record)| {
            records.push((Place { segment: number, offset, len }, record));
            Ok(())
        });
        let scanned = scanned.map_err(|error| self.folder.refusal("read", &path, error))?;
        if !self.what.damaged {
            refuse_holes(self.folder, &header, &scanned)?;
        }
        self.pruned.damaged += scanned.holes.iter().map(|hole| hole.len).sum::<u64>();
        Ok(Some(Read { number, file, header, scanned, records }))
    }

    /// Writes a segment again without the outcomes that are removed.
    fn prune_outcomes(&mut self, read: &Read) -> Result<()> {
        let calls: HashMap<_, _> = read
            .records
            .iter()
            .filter_map(|(_, record)| match record {
                Record::Call(id, label) => Some((*id, (self.what.calls)(label))),
                _ => None,
            })
            .collect();
        let stays = |record: &Record| match record {
            // A call without a label can't be found.
            Record::Outcome { call, kind, .. } => {
                calls.get(call) == Some(&false)
                    && (*kind == OutcomeKind::Returned || !self.what.failures)
            }
            _ => false,
        };
        let outcomes = read.records.iter().filter(|(_, r)| matches!(r, Record::Outcome { .. }));
        let all = outcomes.count();
        let kept: Vec<_> = read.records.iter().filter(|(_, record)| stays(record)).collect();
        self.pruned.outcomes += (all - kept.len()) as u64;
        if all == kept.len() && read.scanned.holes.is_empty() {
            return Ok(());
        }
        if kept.is_empty() {
            return self.remove(SegmentKind::Outcomes, read.number);
        }
        let used: HashSet<_> = kept
            .iter()
            .filter_map(|(_, record)| match record {
                Record::Outcome { call, .. } => Some(*call),
                _ => None,
            })
            .collect();
        let labels = read
            .records
            .iter()
            .filter(|(_, record)| matches!(record, Record::Call(id, _) if used.contains(id)));
        let places: Vec<_> = labels.chain(kept).map(|(place, _)| *place).collect();
        self.rewrite(read, &places)
    }

    /// Writes a segment again with these records only.
    fn rewrite(&self, read: &Read, places: &[Place]) -> Result<()> {
        let Read { number, header, .. } = read;
        let path = self.folder.segment(header.kind, *number);
        let stamp = u64::from_le_bytes(fiber_core::random());
        let header = SegmentHeader { stamp, ..*header };
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(format!(".{UNFINISHED}"));
        let unfinished = PathBuf::from(unfinished);
        let created = disk::create(&unfinished).and_then(|file| {
            disk::write_all_at(&file, [&header.encode(), &[]], 0)?;
            Ok(file)
        });
        let file = created.map_err(|error| self.folder.refusal("write", &path, error))?;
        let file = Arc::new(file);
        let end = SegmentHeader::LEN as u64;
        let mut segment = Segment::at(self.folder, Arc::clone(&file), header, end, 0);
        for place in places {
            let record = self.record(header.kind, *place, &read.file)?;
            segment.append(&[], std::iter::once(&record[..]));
        }
        segment.commit()?;
        segment.seal()?;
        // The index is that of the old one.
        self.remove_sidecar(*number)?;
        let renamed = disk::sync_all(&file).and_then(|()| disk::rename(&unfinished, &path));
        renamed.map_err(|error| self.folder.refusal("replace", &path, error))?;
        self.folder.sync()
    }

    fn record(&self, kind: SegmentKind, place: Place, file: &File) -> Result<bytes::Bytes> {
        let path = self.folder.segment(kind, place.segment);
        let record = read_record(file, place.offset);
        let record = record.map_err(|error| self.folder.refusal("read", &path, error))?;
        record.ok_or_else(|| damaged(self.folder, kind, place.segment, place.offset))
    }

    /// Moves the last values of slots to new segments, if there are others.
    fn slots(&mut self) -> Result<()> {
        let kind = SegmentKind::Slots;
        let numbers = self.folder.segments(kind)?;
        let (mut table, mut changes, mut holes) = (Slots::default(), 0, false);
        let (mut journal, mut unsealed) = (None, None);
        for number in &numbers {
            let has_successor = Some(number) != numbers.last();
            let Some(read) = self.read(kind, *number, has_successor)? else { continue };
            holes |= !read.scanned.holes.is_empty();
            journal = Some(read.header.journal);
            unsealed = (!read.scanned.is_sealed && !has_successor)
                .then(|| (read.header, read.scanned.clone()));
            table.add_segment(*number, Arc::clone(&read.file));
            for (place, record) in read.records {
                if let Some(change) = SlotChange::of(record, place) {
                    table.apply(change);
                    changes += 1;
                }
            }
        }
        let places: Vec<_> = table.names().flat_map(|name| table.places(name)).collect();
        let superseded = changes - places.len() as u64;
        let Some(journal) = journal.filter(|_| superseded > 0 || holes) else { return Ok(()) };
        self.pruned.slots += superseded;
        if let Some((header, scanned)) = unsealed {
            self.seal(header, &scanned)?;
        }
        let mut next = numbers.last().map_or(1, |last| last + 1);
        let (limits, mut current) = (Limits::default(), None);
        for (slot, place, file) in places {
            let record = slots::read_put(self.folder, slot, place, &file)?.1;
            let segment: &mut Segment = match &mut current {
                Some(segment) => segment,
                none => {
                    next += 1;
                    none.insert(Segment::create(self.folder, journal, kind, next - 1)?)
                }
            };
            segment.append(&[], std::iter::once(&record[..]));
            if segment.is_full(&limits) {
                segment.commit()?;
                segment.seal()?;
                current = None;
            }
        }
        if let Some(segment) = &mut current {
            segment.commit()?;
            segment.sync()?;
        }
        // In ascending order: a removal must not go before the value that it removes.
        numbers.iter().try_for_each(|number| {
            if self.folder.segment(kind, *number).exists() {
                self.remove(kind, *number)
            } else {
                Ok(())
            }
        })
    }

    /// Seals the last segment, so that others can follow it.
    fn seal(&self, header: SegmentHeader, scanned: &Scanned) -> Result<()> {
        let (file, _) = open_segment(self.folder, header.kind, header.number, true)?;
        let path = self.folder.segment(header.kind, header.number);
        let cut = disk::set_len(&file, scanned.end);
        cut.map_err(|error| self.folder.refusal("cut the torn end of", &path, error))?;
        Segment::at(self.folder, file, header, scanned.end, scanned.sequence).seal()
    }

    /// Removes a segment, durably.
    fn remove(&self, kind: SegmentKind, number: u32) -> Result<(), Error> {
        if kind == SegmentKind::Outcomes {
            self.remove_sidecar(number)?;
        }
        let path = self.folder.segment(kind, number);
        disk::remove_file(&path).map_err(|error| self.folder.refusal("remove", &path, error))?;
        self.folder.sync()
    }

    fn remove_sidecar(&self, number: u32) -> Result<()> {
        let path = self.folder.sidecar(number);
        match disk::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(self.folder.refusal("remove", &path, error))
            }
            _ => Ok(()),
        }
    }
}
