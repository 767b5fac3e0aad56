//! Opening a journal.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fiber_core::{Error, Result};
use parking_lot::Mutex;

use crate::call::Calls;
use crate::disk;
use crate::folder::Folder;
use crate::format::{HeaderError, Limits, SegmentHeader, SegmentKind, VERSION};
use crate::index::{Index, IndexEntry};
use crate::scan::{Found, Scanned, scan};
use crate::segment::{Place, Segment};
use crate::sidecar::Contents;
use crate::slots::{SlotChange, Slots};
use crate::writer::{Stream, Writer};

/// The parts of an open journal.
pub(crate) struct Opened {
    pub(crate) index: Index,
    pub(crate) calls: Arc<Calls>,
    pub(crate) slots: Arc<Mutex<Slots>>,
    pub(crate) writer: Writer,
}

/// Reads a journal whose lock this process holds, and cuts off torn tails. `refusal` says why the
/// journal can't be written; then nothing is changed, and nothing can be recorded.
pub(crate) fn open(folder: &Arc<Folder>, limits: Limits, refusal: Option<Error>) -> Result<Opened> {
    let writes = refusal.is_none();
    if writes {
        folder.remove_unfinished()?;
        // A process that was killed may have named the last segment, and not have come to this.
        folder.sync()?;
    }
    let calls = Arc::new(Calls::default());
    let mut opening = Opening { folder, writes, journal: None };
    let (outcomes, contents, entries) = opening.outcomes(&calls)?;
    let mut slots = Slots::default();
    let slot_stream = opening.slots(&mut slots)?;
    let journal = opening.journal.unwrap_or_else(fiber_core::random);
    let slots = Arc::new(Mutex::new(slots));
    let writer = Writer::new(
        Arc::clone(folder),
        journal,
        limits,
        Arc::clone(&calls),
        Arc::clone(&slots),
        [outcomes, slot_stream],
        contents,
    );
    let writer = writer.refusing(refusal);
    Ok(Opened { index: Index::new(entries), calls, slots, writer })
}

struct Opening<'a> {
    folder: &'a Arc<Folder>,
    /// Whether the journal can be written.
    writes: bool,
    /// The journal's id, when it is known.
    journal: Option<[u8; 16]>,
}

impl Opening<'_> {
    /// Returns the segments of outcomes, what is in the one that is written next, and all outcomes.
    fn outcomes(&mut self, calls: &Calls) -> Result<(Stream, Contents, Vec<IndexEntry>)> {
        let kind = SegmentKind::Outcomes;
        let numbers = self.folder.segments(kind)?;
        let mut stream = Stream { kind, current: None, next: 1 };
        let (mut last, mut entries) = (Contents::default(), Vec::new());
        for (at, number) in numbers.iter().copied().enumerate() {
            let is_last = at + 1 == numbers.len();
            let (file, header) = self.segment(kind, number, is_last)?;
            let path = self.folder.segment(kind, number);
            let len = file.metadata().map(|data| data.len());
            let len = len.map_err(|error| self.folder.refusal("read", &path, error))?;
            let known = (!is_last).then(|| Contents::read(self.folder, &header, len)).flatten();
            let contents = match known {
                Some(contents) => contents,
                None => {
                    let mut contents = Contents::default();
                    let scanned = self.scan(&file, &header, is_last, |(offset, _, record)| {
                        contents.add(number, offset, record);
                    })?;
                    if is_last {
                        stream.current = self.last_segment(file, header, &scanned)?;
                    }
                    if scanned.is_sealed && self.writes {
                        contents.write(self.folder, &header, len);
                    }
                    contents
                }
            };
            for (id, label) in &contents.calls {
                calls.insert(*id, label.clone());
            }
            entries.extend_from_slice(&contents.outcomes);
            stream.next = number.saturating_add(1);
            last = contents;
        }
        let current = if stream.current.is_some() { last } else { Contents::default() };
        Ok((stream, current, entries))
    }

    /// Reads the slots, and returns their segments.
    fn slots(&mut self, slots: &mut Slots) -> Result<Stream> {
        let kind = SegmentKind::Slots;
        let numbers = self.folder.segments(kind)?;
        let mut stream = Stream { kind, current: None, next: 1 };
        for (at, number) in numbers.iter().copied().enumerate() {
            let is_last = at + 1 == numbers.len();
            let (file, header) = self.segment(kind, number, is_last)?;
            slots.add_segment(number, Arc::clone(&file));
            let scanned = self.scan(&file, &header, is_last, |(offset, len, record)| {
                let change = SlotChange::of(record, Place { segment: number, offset, len });
                change.into_iter().for_each(|change| slots.apply(change));
            })?;
            slots.set_len(number, scanned.end);
            if is_last {
                stream.current = self.last_segment(file, header, &scanned)?;
            }
            stream.next = number.saturating_add(1);
        }
        Ok(stream)
    }

    /// Opens a segment of this journal. What is found in the last one is on disk: a program may
    /// have ended between writing and syncing it, and what is delivered from the journal must not
    /// be lost afterwards.
    fn segment(
        &mut self,
        kind: SegmentKind,
        number: u32,
        is_last: bool,
    ) -> Result<(Arc<File>, SegmentHeader)> {
        let (file, header) = open_segment(self.folder, kind, number, is_last && self.writes)?;
        if *self.journal.get_or_insert(header.journal) != header.journal {
            let path = self.folder.segment(kind, number);
            return Err(self.folder.error(format!("`{}` is of another journal", path.display())));
        }
        if is_last && self.writes {
            let path = || self.folder.segment(kind, number);
            disk::settle(&file).map_err(|error| self.folder.refusal("sync", &path(), error))?;
        }
        Ok((file, header))
    }

    fn scan(
        &self,
        file: &File,
        header: &SegmentHeader,
        is_last: bool,
        mut visit: impl FnMut(Found),
    ) -> Result<Scanned> {
        let scanned = scan(file, header, !is_last, |found| {
            visit(found);
            Ok(())
        });
        let path = self.folder.segment(header.kind, header.number);
        let scanned = scanned.map_err(|error| self.folder.refusal("read", &path, error))?;
        refuse_holes(self.folder, header, &scanned)?;
        Ok(scanned)
    }

    /// Cuts the torn tail off the last segment. Returns the segment, unless it is sealed or can't
    /// be written.
    fn last_segment(
        &self,
        file: Arc<File>,
        header: SegmentHeader,
        scanned: &Scanned,
    ) -> Result<Option<Segment>> {
        if !self.writes {
            return Ok(None);
        }
        let path = self.folder.segment(header.kind, header.number);
        cut_tail(&file, scanned)
            .map_err(|error| self.folder.refusal("cut the torn end of", &path, error))?;
        let segment = || Segment::at(self.folder, file, header, scanned.end, scanned.sequence);
        Ok((!scanned.is_sealed).then(segment))
    }
}

/// Why a segment can't be opened.
pub(crate) enum OpenError {
    /// It was removed meanwhile.
    Missing(Error),
    /// Its header can't be read.
    Damaged(Error),
    /// The system refuses it, or a newer build has written it.
    Refused(Error),
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        match error {
            OpenError::Missing(error) | OpenError::Damaged(error) | OpenError::Refused(error) => {
                error
            }
        }
    }
}

/// Opens a segment and reads its header.
pub(crate) fn open_segment(
    folder: &Folder,
    kind: SegmentKind,
    number: u32,
    writes: bool,
) -> Result<(Arc<File>, SegmentHeader), OpenError> {
    let path = folder.segment(kind, number);
    let file = File::options().read(true).write(writes).open(&path).map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let error = folder.refusal("open", &path, error);
        if is_missing { OpenError::Missing(error) } else { OpenError::Refused(error) }
    })?;
    let mut bytes = [0; SegmentHeader::LEN];
    let header = match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => SegmentHeader::decode(&bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(HeaderError::Damaged),
        Err(error) => return Err(OpenError::Refused(folder.refusal("read", &path, error))),
    };
    match header {
        Ok(header) if header.kind == kind && header.number == number => {
            Ok((Arc::new(file), header))
        }
        Err(HeaderError::Newer(version)) => Err(OpenError::Refused(folder.error(format!(
            "`{}` has version {version} of the format, and this program knows versions up to \
             {VERSION}: use a program with a newer fiber, or another journal",
            path.display()
        )))),
        Ok(_) | Err(HeaderError::Damaged) => Err(OpenError::Damaged(folder.error(format!(
            "the first {} bytes of `{}` are damaged, so none of it can be read: restore the file, \
             or drop it with `fiber journal prune --damaged`",
            SegmentHeader::LEN,
            path.display()
        )))),
    }
}

/// Returns an error if something can't be read that was on disk.
pub(crate) fn refuse_holes(
    folder: &Folder,
    header: &SegmentHeader,
    scanned: &Scanned,
) -> Result<()> {
    let Some(hole) = scanned.holes.first() else { return Ok(()) };
    let path = folder.segment(header.kind, header.number);
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

/// Cuts off what was not on disk when the writer ended.
fn cut_tail(file: &File, scanned: &Scanned) -> io::Result<()> {
    if scanned.len > scanned.end {
        disk::set_len(file, scanned.end)?;
        disk::sync(file)?;
    }
    Ok(())
}
