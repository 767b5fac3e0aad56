//! Sidecar indexes: what opening needs to know of a sealed segment of outcomes, in a file beside
//! it. They are made again if they are missing or damaged.

use std::fs;

use crate::disk;
use crate::folder::Folder;
use crate::format::{SegmentHeader, u32_at, u64_at};
use crate::index::IndexEntry;
use crate::record::{self, HEADER_LEN, Head, Record, RecordHeader};
use crate::{CallId, CallLabel};

const MAGIC: [u8; 8] = *b"FIBERIX1";
const FIXED_LEN: usize = 40;

/// The content of a segment of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) calls: Vec<(CallId, CallLabel)>,
    pub(crate) outcomes: Vec<IndexEntry>,
}

impl Contents {
    /// Adds a record of the segment.
    pub(crate) fn add(&mut self, segment: u32, offset: u64, record: Record) {
        match record {
            Record::Call(id, label) => self.calls.push((id, label)),
            Record::Outcome { key, kind, .. } => {
                self.outcomes.push(IndexEntry::new(key, kind.is_failure(), segment, offset));
            }
            Record::Put { .. } | Record::Removed { .. } => {}
        }
    }

    /// Writes the sidecar of a segment of this length. Nothing is lost if it can't be written.
    pub(crate) fn write(&self, folder: &Folder, header: &SegmentHeader, len: u64) {
        let path = folder.sidecar(header.number);
        let bytes = self.encode(header.stamp, len);
        let file = disk::create(&path);
        let written = file.and_then(|file| disk::write_all_at(&file, [&bytes, &[]], 0));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "can't write an index");
        }
    }

    /// Reads the sidecar of a segment of this length, if there is one.
    pub(crate) fn read(folder: &Folder, header: &SegmentHeader, len: u64) -> Option<Contents> {
        let bytes = fs::read(folder.sidecar(header.number)).ok()?;
        Contents::decode(&bytes, header.stamp, len)
    }

    fn encode(&self, stamp: u64, len: u64) -> Vec<u8> {
        let mut calls = Vec::new();
        for (id, label) in &self.calls {
            calls.extend(Head::call(*id, label).encode(std::iter::empty()));
        }
        let size = FIXED_LEN + calls.len() + IndexEntry::LEN * self.outcomes.len() + 4;
        let mut bytes = Vec::with_capacity(size);
        bytes.extend(MAGIC);
        for number in [stamp, len, calls.len() as u64, self.outcomes.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(calls);
        for entry in &self.outcomes {
            bytes.extend_from_slice(&entry.encode());
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], stamp: u64, len: u64) -> Option<Contents> {
        let (bytes, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let is_current = bytes.len() >= FIXED_LEN
            && bytes[..8] == MAGIC
            && u64_at(bytes, 8) == stamp
            && u64_at(bytes, 16) == len
            && crc32fast::hash(bytes) == u32_at(crc, 0);
        if !is_current {
            return None;
        }
        let calls_len = usize::try_from(u64_at(bytes, 24)).ok()?;
        let (mut calls_part, outcomes) = bytes[FIXED_LEN..].split_at_checked(calls_len)?;
        let mut calls = Vec::new();
        while calls_part.len() >= HEADER_LEN {
            let len = usize::try_from(RecordHeader::decode(calls_part).len).ok()?;
            let (call, rest) = calls_part.split_at_checked(len.checked_add(HEADER_LEN)?)?;
            let Record::Call(id, label) = record::decode_whole(call)? else { return None };
            calls.push((id, label));
            calls_part = rest;
        }
        let (outcomes, _) = outcomes.as_chunks::<{ IndexEntry::LEN }>();
        let outcomes: Vec<_> = outcomes.iter().map(IndexEntry::decode).collect();
        (outcomes.len() as u64 == u64_at(bytes, 32)).then_some(Contents { calls, outcomes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskKey;

    #[test]
    fn a_damaged_or_foreign_index_is_not_used() {
        let label = CallLabel { name: "#0".into(), function: "f".into(), version: "1".into() };
        let entry = |n| IndexEntry::new(TaskKey([n; 16]), n == 2, 5, 1000);
        let contents = Contents { calls: vec![(3, label)], outcomes: (0..4).map(entry).collect() };
        let bytes = contents.encode(7, 2000);
        assert_eq!(Contents::decode(&bytes, 7, 2000), Some(contents));
        assert_eq!(Contents::decode(&bytes, 8, 2000), None);
        assert_eq!(Contents::decode(&bytes, 7, 2001), None);
        for at in 0..bytes.len() {
            assert_eq!(Contents::decode(&bytes[..at], 7, 2000), None);
            let mut garbled = bytes.clone();
            garbled[at] ^= 4;
            assert_eq!(Contents::decode(&garbled, 7, 2000), None);
        }
    }
}
