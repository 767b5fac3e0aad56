//! Reading a segment from its beginning to its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::{COMMIT_MAGIC, CommitHeader, SegmentHeader};
use crate::record::{self, HEADER_LEN, Record, RecordHeader};

/// How much is read at once.
const BLOCK: usize = 256 << 10;

/// Bytes of a segment that were on disk and can't be read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// The findings of a scan, beside the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// The end of the last commit. A torn tail begins there.
    pub(crate) end: u64,
    /// The length of the file.
    pub(crate) len: u64,
    /// The number of the next commit.
    pub(crate) sequence: u64,
    /// Whether the last commit is a seal.
    pub(crate) is_sealed: bool,
    pub(crate) commits: u64,
    pub(crate) holes: Vec<Hole>,
}

/// A record that a scan has found: its offset, its length with its header, and what it is.
pub(crate) type Found = (u64, u64, Record);

/// Reads a segment's commits, and passes the records of complete ones.
///
/// Something that is no commit is the torn tail, unless a later commit says that it was on disk.
/// If the segment `has_successor`, everything was. What can be read behind such a hole is passed
/// too.
pub(crate) fn scan(
    file: &File,
    header: &SegmentHeader,
    has_successor: bool,
    mut visit: impl FnMut(Found) -> io::Result<()>,
) -> io::Result<Scanned> {
    let len = file.metadata()?.len();
    let mut reader = Reader { file, len, start: 0, buffer: Vec::new() };
    let mut scanned = Scanned { len, end: SegmentHeader::LEN as u64, ..Scanned::default() };
    // The latest offset that was on disk, when it is known.
    let mut on_disk = has_successor.then_some(u64::MAX);
    while scanned.end < len && !scanned.is_sealed {
        let at = scanned.end;
        let commit = reader.commit(header.stamp, at)?;
        let commit = commit.filter(|commit| commit.sequence >= scanned.sequence);
        let (records, holes) = match &commit {
            Some(commit) => reader.records(at, commit)?,
            None => (Vec::new(), Vec::new()),
        };
        let is_complete =
            commit.as_ref().is_some_and(|commit| commit.records as usize == records.len());
        if !is_complete || !holes.is_empty() {
            let on_disk = match on_disk {
                Some(offset) => offset,
                None => *on_disk.insert(reader.synced_behind(header.stamp, at)?),
            };
            if on_disk <= at {
                break;
            }
        }
        let Some(commit) = commit else {
            let next = reader.next_commit(header.stamp, at + 1)?.map_or(len, |(offset, _)| offset);
            scanned.holes.push(Hole { offset: at, len: next - at });
            scanned.end = next;
            continue;
        };
        scanned.holes.extend(holes);
        for record in records {
            visit(record)?;
        }
        scanned.commits += 1;
        scanned.sequence = commit.sequence.saturating_add(1);
        scanned.is_sealed = commit.is_seal;
        scanned.end = (at + CommitHeader::LEN as u64).saturating_add(commit.len).min(len);
    }
    if has_successor
        && !scanned.is_sealed
        && scanned.holes.last().is_none_or(|hole| hole.offset + hole.len < len)
    {
        scanned.holes.push(Hole { offset: scanned.end, len: len - scanned.end });
    }
    Ok(scanned)
}

/// Reads a file through a buffer.
struct Reader<'a> {
    file: &'a File,
    len: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    /// Returns the bytes at this offset, fewer if the file ends.
    fn bytes(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let len = (self.len.saturating_sub(offset)).min(len as u64) as usize;
        let is_here =
            offset >= self.start && offset + len as u64 <= self.start + self.buffer.len() as u64;
        if !is_here {
            let whole = (self.len - offset.min(self.len)).min(len.max(BLOCK) as u64) as usize;
            self.buffer.resize(whole, 0);
            self.start = offset;
            if let Err(error) = self.file.read_exact_at(&mut self.buffer, offset) {
                self.buffer.clear();
                return Err(error);
            }
        }
        let at = (offset.max(self.start) - self.start) as usize;
        Ok(&self.buffer[at.min(self.buffer.len())..][..len])
    }

    /// Returns the header of the commit at this offset, if there is one.
    fn commit(&mut self, stamp: u64, offset: u64) -> io::Result<Option<CommitHeader>> {
        Ok(CommitHeader::decode(self.bytes(offset, CommitHeader::LEN)?, stamp, offset))
    }

    /// Reads the records of a commit, and the places where none can be read.
    fn records(&mut self, at: u64, commit: &CommitHeader) -> io::Result<(Vec<Found>, Vec<Hole>)> {
        let (mut records, mut holes) = (Vec::new(), Vec::new());
        let mut at = at + CommitHeader::LEN as u64;
        let end = at.saturating_add(commit.len);
        while at < end {
            let header = self.bytes(at, HEADER_LEN)?;
            let header = (header.len() == HEADER_LEN).then(|| RecordHeader::decode(header));
            let next = header.and_then(|header| {
                let next = at.checked_add(HEADER_LEN as u64)?.checked_add(header.len)?;
                (next <= end.min(self.len)).then_some((header, next))
            });
            let Some((header, next)) = next else {
                holes.push(Hole { offset: at, len: end.min(self.len) - at });
                break;
            };
            match self.record(at, &header)? {
                Some(record) => records.push((at, next - at, record)),
                None => holes.push(Hole { offset: at, len: next - at }),
            }
            at = next;
        }
        Ok((records, holes))
    }

    /// Reads a record that ends before the file does, if it is one.
    fn record(&mut self, at: u64, header: &RecordHeader) -> io::Result<Option<Record>> {
        let mut crc = crc32fast::Hasher::new();
        let (mut offset, end) = (at + 4, at + HEADER_LEN as u64 + header.len);
        while offset < end {
            let bytes = self.bytes(offset, (end - offset).min(BLOCK as u64) as usize)?;
            crc.update(bytes);
            offset += bytes.len() as u64;
        }
        if !header.has_crc(crc.finalize()) {
            return Ok(None);
        }
        record::decode(header, |len| {
            let bytes = self.bytes(at + HEADER_LEN as u64, len)?;
            Ok((bytes.len() == len).then(|| bytes.to_vec()))
        })
    }

    /// Returns the first commit at or behind this offset.
    fn next_commit(&mut self, stamp: u64, from: u64) -> io::Result<Option<(u64, CommitHeader)>> {
        let mut from = from;
        while from + CommitHeader::LEN as u64 <= self.len {
            let bytes = self.bytes(from, BLOCK)?;
            let mut found = None;
            for at in 0..=bytes.len() - CommitHeader::LEN {
                if bytes[at] == COMMIT_MAGIC[0]
                    && let Some(commit) =
                        CommitHeader::decode(&bytes[at..], stamp, from + at as u64)
                {
                    found = Some((from + at as u64, commit));
                    break;
                }
            }
            if found.is_some() {
                return Ok(found);
            }
            from += (bytes.len() - CommitHeader::LEN + 1) as u64;
        }
        Ok(None)
    }

    /// Returns up to where the segment was on disk, as the commits behind this offset say.
    fn synced_behind(&mut self, stamp: u64, at: u64) -> io::Result<u64> {
        let (mut from, mut synced) = (at, 0);
        while let Some((offset, commit)) = self.next_commit(stamp, from)? {
            synced = synced.max(commit.synced);
            from = offset + CommitHeader::LEN as u64;
        }
        Ok(synced)
    }
}
