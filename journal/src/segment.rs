//! A segment that is written.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use fiber_core::{Error, Result};

use crate::disk;
use crate::folder::Folder;
use crate::format::{CommitHeader, Limits, SegmentHeader, SegmentKind};

/// Parts of a value that are this long are written from where they are. Shorter ones are copied
/// together.
const LARGE: usize = 32 << 10;
/// How much is copied together, before it is written.
const BUFFER: usize = 1 << 20;

/// The last segment of its kind, which gets commits.
pub(crate) struct Segment {
    folder: Arc<Folder>,
    path: PathBuf,
    file: Arc<File>,
    header: SegmentHeader,
    /// The end of the last commit.
    end: u64,
    /// The offset up to which the file is on disk.
    synced: u64,
    sequence: u64,
    commit: Commit,
}

/// A commit that is not complete.
#[derive(Default)]
struct Commit {
    /// The bytes that are not in the file yet. They begin with the header's place.
    buffer: Vec<u8>,
    /// The length of what is in the file.
    written: u64,
    records: u32,
    error: Option<io::Error>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    /// The length of the record with its header.
    pub(crate) len: u64,
}

impl Segment {
    /// Creates a segment, durably.
    pub(crate) fn create(
        folder: &Arc<Folder>,
        journal: [u8; 16],
        kind: SegmentKind,
        number: u32,
    ) -> Result<Segment> {
        let path = folder.segment(kind, number);
        let stamp = u64::from_le_bytes(fiber_core::random());
        let header = SegmentHeader { kind, journal, number, stamp };
        let file = folder.write(&path, &header.encode());
        let file = file.map_err(|error| folder.refusal("create", &path, error))?;
        Ok(Segment::at(folder, Arc::new(file), header, SegmentHeader::LEN as u64, 0))
    }

    /// Goes on with a segment whose commits end at `end`, and are on disk.
    pub(crate) fn at(
        folder: &Arc<Folder>,
        file: Arc<File>,
        header: SegmentHeader,
        end: u64,
        sequence: u64,
    ) -> Segment {
        let path = folder.segment(header.kind, header.number);
        let commit = Commit::default();
        let folder = Arc::clone(folder);
        Segment { folder, path, file, header, end, synced: end, sequence, commit }
    }

    pub(crate) fn number(&self) -> u32 {
        self.header.number
    }

    pub(crate) fn header(&self) -> &SegmentHeader {
        &self.header
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns the end of the last commit.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the segment's length with the records that are not committed.
    pub(crate) fn len(&self) -> u64 {
        self.end + self.commit.written + self.commit.buffer.len() as u64
    }

    /// Returns whether the segment has as many bytes as it should.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        self.len() >= limits.of(self.header.kind)
    }

    /// Returns whether commits are not on disk.
    pub(crate) fn is_dirty(&self) -> bool {
        self.synced < self.end
    }

    /// Adds a record to the next commit. Its value is written from where it is, if it is large.
    pub(crate) fn append<'a>(
        &mut self,
        head: &[u8],
        value: impl Iterator<Item = &'a [u8]>,
    ) -> Place {
        if self.commit.buffer.is_empty() && self.commit.written == 0 {
            self.commit.buffer.extend([0; CommitHeader::LEN]);
        }
        let offset = self.len();
        self.commit.records += 1;
        self.commit.buffer.extend_from_slice(head);
        for part in value {
            if part.len() < LARGE {
                self.commit.buffer.extend_from_slice(part);
            } else {
                self.write(part);
            }
        }
        if self.commit.buffer.len() >= BUFFER {
            self.write(&[]);
        }
        Place { segment: self.header.number, offset, len: self.len() - offset }
    }

    /// Writes the buffer and these bytes. After an error nothing is written until the commit ends.
    fn write(&mut self, part: &[u8]) {
        let offset = self.end + self.commit.written;
        let commit = &mut self.commit;
        if commit.error.is_none() {
            commit.error = disk::write_all_at(&self.file, [&commit.buffer, part], offset).err();
        }
        commit.written += (commit.buffer.len() + part.len()) as u64;
        commit.buffer.clear();
    }

    /// Completes the commit, if there are records. After an error the segment ends as before.
    pub(crate) fn commit(&mut self) -> Result<()> {
        if self.commit.records == 0 {
            return Ok(());
        }
        self.complete(false)
    }

    /// Writes the last commit, which has no records, and waits until the segment is on disk.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.sync()?;
        self.commit.buffer.extend([0; CommitHeader::LEN]);
        self.complete(true)?;
        self.sync()
    }

    fn complete(&mut self, is_seal: bool) -> Result<()> {
        let len = self.len() - self.end - CommitHeader::LEN as u64;
        let header = CommitHeader {
            is_seal,
            sequence: self.sequence,
            synced: self.synced,
            len,
            records: self.commit.records,
        };
        let header = header.encode(self.header.stamp, self.end);
        if self.commit.written == 0 {
            self.commit.buffer[..CommitHeader::LEN].copy_from_slice(&header);
            self.write(&[]);
        } else {
            self.write(&[]);
            // Without it, what has been written is no commit.
            if self.commit.error.is_none() {
                self.commit.error = disk::write_all_at(&self.file, [&header, &[]], self.end).err();
            }
        }
        let commit = std::mem::take(&mut self.commit);
        match commit.error {
            None => {
                self.end += commit.written;
                self.sequence += 1;
                // The buffer is used again, unless it has become large.
                self.commit.buffer = commit.buffer;
                Ok(())
            }
            Some(error) => Err(self.undo(self.end, "write", error)),
        }
    }

    /// Waits until all commits are on disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if !self.is_dirty() {
            return Ok(());
        }
        match disk::sync(&self.file) {
            Ok(()) => {
                self.synced = self.end;
                Ok(())
            }
            // Bytes that were not on disk may be lost, although they can be read.
            Err(error) => Err(self.undo(self.synced, "sync", error)),
        }
    }

    /// Cuts the file, if it can be, and returns the error.
    fn undo(&mut self, end: u64, what: &str, error: io::Error) -> Error {
        if let Err(error) = disk::set_len(&self.file, end) {
            tracing::warn!(path = %self.path.display(), %error, "can't cut off an unfinished commit");
        }
        self.folder.refusal(what, &self.path, error)
    }
}
