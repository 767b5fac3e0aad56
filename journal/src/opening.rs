//! Opening a journal.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fiber_core::{Error, Result};
use parking_lot::Mutex;

use crate::CallId;
use crate::call::Calls;
use crate::folder::Folder;
use crate::format::{HeaderError, SegmentHeader, SegmentKind, VERSION};
use crate::index::{Index, IndexEntry};
use crate::record::Record;
use crate::scan::{Found, Scanned, scan};
use crate::segment::{Place, Segment};
use crate::slots::{SlotChange, Slots};
use crate::writer::{Stream, Writer};

/// What an open journal consists of.
pub(crate) struct Opened {
    pub(crate) index: Index,
    pub(crate) calls: Arc<Calls>,
    pub(crate) slots: Arc<Mutex<Slots>>,
    pub(crate) writer: Writer,
}

/// Reads a journal whose lock this process holds, and cuts off torn tails.
pub(crate) fn open(folder: &Arc<Folder>) -> Result<Opened> {
    folder.remove_unfinished()?;
    let mut journal = None;
    let calls = Arc::new(Calls::default());
    let (mut entries, mut labelled) = (Vec::new(), HashSet::new());
    let outcomes =
        read(folder, SegmentKind::Outcomes, &mut journal, |segment, found| match found {
            SegmentPart::Begin(_) => labelled.clear(),
            SegmentPart::Record((_, _, Record::Call(id, label))) => {
                labelled.insert(id);
                calls.insert(id, label);
            }
            SegmentPart::Record((offset, _, Record::Outcome { key, kind, .. })) => {
                entries.push(IndexEntry::new(key, kind.is_failure(), segment, offset));
            }
            SegmentPart::Record(_) => {}
        })?;
    let mut slots = Slots::default();
    let slot_stream = read(folder, SegmentKind::Slots, &mut journal, |segment, found| {
        let (offset, len, record) = match found {
            SegmentPart::Begin(file) => return slots.add_segment(segment, file),
            SegmentPart::Record(found) => found,
        };
        match record {
            Record::Put { slots: name, slot, .. } => {
                let place = Some(Place { segment, offset, len });
                slots.apply(SlotChange { slots: name, slot, place });
            }
            Record::Removed { slots: name, slot } => {
                slots.apply(SlotChange { slots: name, slot, place: None });
            }
            _ => {}
        }
    })?;
    let journal = journal.unwrap_or_else(fiber_core::random);
    let slots = Arc::new(Mutex::new(slots));
    let streams = [outcomes, slot_stream];
    let labelled: HashSet<CallId> =
        if streams[0].current.is_some() { labelled } else { HashSet::new() };
    let writer = Writer::new(
        Arc::clone(folder),
        journal,
        Arc::clone(&calls),
        Arc::clone(&slots),
        streams,
        labelled,
    );
    Ok(Opened { index: Index::new(entries), calls, slots, writer })
}

/// What is read of a segment.
enum SegmentPart {
    Begin(Arc<File>),
    Record(Found),
}

/// Reads all segments of a kind. The last one can be written afterwards.
fn read(
    folder: &Arc<Folder>,
    kind: SegmentKind,
    journal: &mut Option<[u8; 16]>,
    mut visit: impl FnMut(u32, SegmentPart),
) -> Result<Stream> {
    let numbers = folder.segments(kind)?;
    let mut stream = Stream { kind, current: None, next: 1 };
    for (at, number) in numbers.iter().copied().enumerate() {
        let is_last = at + 1 == numbers.len();
        let (file, header) = open_segment(folder, kind, number, is_last)?;
        if *journal.get_or_insert(header.journal) != header.journal {
            let path = folder.segment(kind, number);
            return Err(folder.error(format!("`{}` is of another journal", path.display())));
        }
        visit(number, SegmentPart::Begin(Arc::clone(&file)));
        let scanned = scan(&file, &header, !is_last, |found| {
            visit(number, SegmentPart::Record(found));
            Ok(())
        });
        let path = folder.segment(kind, number);
        let scanned = scanned.map_err(|error| folder.refusal("read", &path, error))?;
        refuse_holes(folder, kind, number, &scanned)?;
        stream.next = number + 1;
        if is_last {
            let cut = cut_tail(&file, &scanned);
            cut.map_err(|error| folder.refusal("cut the torn end of", &path, error))?;
            stream.current = (!scanned.is_sealed)
                .then(|| Segment::at(folder, file, header, scanned.end, scanned.sequence));
        }
    }
    Ok(stream)
}

/// Opens a segment and reads its header.
pub(crate) fn open_segment(
    folder: &Folder,
    kind: SegmentKind,
    number: u32,
    writes: bool,
) -> Result<(Arc<File>, SegmentHeader)> {
    let path = folder.segment(kind, number);
    let file = File::options().read(true).write(writes).open(&path);
    let file = file.map_err(|error| folder.refusal("open", &path, error))?;
    let mut bytes = [0; SegmentHeader::LEN];
    let header = match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => SegmentHeader::decode(&bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(HeaderError::Damaged),
        Err(error) => return Err(folder.refusal("read", &path, error)),
    };
    match header {
        Ok(header) if header.kind == kind && header.number == number => {
            Ok((Arc::new(file), header))
        }
        Err(HeaderError::Newer(version)) => Err(folder.error(format!(
            "`{}` has version {version} of the format, and this program knows versions up to \
             {VERSION}: use a program with a newer fiber, or another journal",
            path.display()
        ))),
        Ok(_) | Err(HeaderError::Damaged) => Err(folder.error(format!(
            "the first {} bytes of `{}` are damaged, so none of it can be read: restore the file, \
             or drop it with `fiber journal prune --damaged`",
            SegmentHeader::LEN,
            path.display()
        ))),
    }
}

/// Returns an error if something can't be read that was on disk.
fn refuse_holes(
    folder: &Folder,
    kind: SegmentKind,
    number: u32,
    scanned: &Scanned,
) -> Result<(), Error> {
    let Some(hole) = scanned.holes.first() else { return Ok(()) };
    let path = folder.segment(kind, number);
    let lost: u64 = scanned.holes.iter().map(|hole| hole.len).sum();
    Err(folder.error(format!(
        "`{}` is damaged from byte {} on: {lost} of its {} bytes can't be read. `fiber journal \
         verify` lists the damage, and `fiber journal prune --damaged` keeps what can be read; the \
         lost tasks run again then",
        path.display(),
        hole.offset,
        scanned.len
    )))
}

/// Cuts off what was not on disk when the writer ended. The rest may be in memory only, although
/// it can be read: what is delivered from the journal must not be lost afterwards.
fn cut_tail(file: &File, scanned: &Scanned) -> io::Result<()> {
    if scanned.len > scanned.end {
        file.set_len(scanned.end)?;
    }
    file.sync_data()
}
