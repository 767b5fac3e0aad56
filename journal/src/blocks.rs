//! Reading records: a few blocks of the segments are kept in memory.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use fiber_core::{Error, Result};

use crate::Outcome;
use crate::folder::Folder;
use crate::format::SegmentKind;
use crate::record::{self, HEADER_LEN, Record, RecordHeader, Value};

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 16;
/// How many segments are open for reading.
const FILES: usize = 64;

/// Reads outcomes from their segments. Neighbours are read together.
///
/// The segments are not mapped: a disk that goes away would kill the process.
pub(crate) struct Blocks {
    folder: Arc<Folder>,
    files: HashMap<u32, File>,
    blocks: Vec<Block>,
    /// The block that is replaced next.
    oldest: usize,
    last: usize,
}

struct Block {
    segment: u32,
    number: u64,
    bytes: Vec<u8>,
}

impl Blocks {
    pub(crate) fn new(folder: &Arc<Folder>) -> Blocks {
        let (files, blocks) = (HashMap::new(), Vec::new());
        Blocks { folder: Arc::clone(folder), files, blocks, oldest: 0, last: 0 }
    }

    /// Reads the outcome at this place.
    pub(crate) fn outcome(&mut self, segment: u32, offset: u64) -> Result<Outcome> {
        let at = (offset % BLOCK as u64) as usize;
        let block = self.block(segment, offset / BLOCK as u64)?;
        let record = block.get(at..).unwrap_or_default();
        if record.len() >= HEADER_LEN {
            let len = RecordHeader::decode(record).len;
            let end = usize::try_from(len).ok().and_then(|len| len.checked_add(HEADER_LEN));
            if let Some(record) = end.and_then(|end| record.get(..end)) {
                // A copy holds no more memory than the outcome needs.
                let outcome = outcome(record, |range| Bytes::copy_from_slice(&record[range]));
                return outcome.ok_or_else(|| self.damaged(segment, offset));
            }
        }
        let file = self.file(segment)?;
        let record = read_record(file, offset);
        let path = self.folder.segment(SegmentKind::Outcomes, segment);
        let record = record.map_err(|error| self.folder.refusal("read", &path, error))?;
        let record = record.ok_or_else(|| self.damaged(segment, offset))?;
        outcome(&record, |range| record.slice(range)).ok_or_else(|| self.damaged(segment, offset))
    }

    /// Returns a block, shorter if the file ends.
    fn block(&mut self, segment: u32, number: u64) -> Result<&[u8]> {
        let is_it = |block: &Block| block.segment == segment && block.number == number;
        if !self.blocks.get(self.last).is_some_and(is_it) {
            self.last = match self.blocks.iter().position(is_it) {
                Some(at) => at,
                None => self.read(segment, number)?,
            };
        }
        Ok(&self.blocks[self.last].bytes)
    }

    /// Reads a block in the place of the oldest one.
    fn read(&mut self, segment: u32, number: u64) -> Result<usize> {
        let file = self.file(segment)?;
        let mut bytes = vec![0; BLOCK];
        let read = read_up_to(file, &mut bytes, number * BLOCK as u64);
        let path = self.folder.segment(SegmentKind::Outcomes, segment);
        bytes.truncate(read.map_err(|error| self.folder.refusal("read", &path, error))?);
        let block = Block { segment, number, bytes };
        if self.blocks.len() < BLOCKS {
            self.blocks.push(block);
            return Ok(self.blocks.len() - 1);
        }
        let at = self.oldest;
        self.oldest = (at + 1) % BLOCKS;
        self.blocks[at] = block;
        Ok(at)
    }

    fn file(&mut self, segment: u32) -> Result<&File> {
        if !self.files.contains_key(&segment) {
            if self.files.len() >= FILES {
                self.files.clear();
            }
            let path = self.folder.segment(SegmentKind::Outcomes, segment);
            let file = File::open(&path);
            let file = file.map_err(|error| self.folder.refusal("open", &path, error))?;
            self.files.insert(segment, file);
        }
        Ok(&self.files[&segment])
    }

    fn damaged(&self, segment: u32, offset: u64) -> Error {
        damaged(&self.folder, SegmentKind::Outcomes, segment, offset)
    }
}

/// Makes the error for a record that is not what was recorded.
pub(crate) fn damaged(folder: &Folder, kind: SegmentKind, segment: u32, offset: u64) -> Error {
    let path = folder.segment(kind, segment);
    folder.error(format!(
        "the record at byte {offset} of `{}` is damaged: `fiber journal verify` lists the damage, \
         and `fiber journal prune --damaged` keeps what can be read",
        path.display()
    ))
}

fn outcome(record: &[u8], slice: impl Fn(std::ops::Range<usize>) -> Bytes) -> Option<Outcome> {
    match record::decode_whole(record)? {
        Record::Outcome { kind, value, .. } => {
            let (bytes, blobs) = slices(&value, slice);
            Some(Outcome { kind, bytes, blobs })
        }
        _ => None,
    }
}

/// Cuts a value out of its record.
pub(crate) fn slices(
    value: &Value,
    slice: impl Fn(std::ops::Range<usize>) -> Bytes,
) -> (Bytes, Vec<Bytes>) {
    let in_record =
        |range: &std::ops::Range<usize>| slice(range.start + HEADER_LEN..range.end + HEADER_LEN);
    (in_record(&value.bytes), value.blobs.iter().map(in_record).collect())
}

/// Reads a whole record. Returns `None` if the file ends before it does.
pub(crate) fn read_record(file: &File, offset: u64) -> std::io::Result<Option<Bytes>> {
    let mut header = [0; HEADER_LEN];
    if read_up_to(file, &mut header, offset)? < HEADER_LEN {
        return Ok(None);
    }
    let len = RecordHeader::decode(&header).len.saturating_add(HEADER_LEN as u64);
    if offset.checked_add(len).is_none_or(|end| end > u64::MAX / 2)
        || offset + len > file.metadata()?.len()
    {
        return Ok(None);
    }
    let mut record = vec![0; len as usize];
    file.read_exact_at(&mut record, offset)?;
    Ok(Some(record.into()))
}

/// Reads as much as there is. Returns how much.
pub(crate) fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
