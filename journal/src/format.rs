//! The format of journals, version 1, byte by byte; `docs/durable.md` has its files and what
//! opening them means. All numbers are little-endian.
//!
//! **A segment** begins with a header of 64 bytes: `FIBERJNL`, the version (`u32`), the kind (1:
//! outcomes, 2: slots), at byte 16 the journal's id (16 bytes, the same in all segments), at byte
//! 32 the segment's number (`u32`), at byte 40 its random stamp (`u64`), at byte 60 the CRC-32 of
//! all that. The header is on the disk before the file has its name. Commits follow.
//!
//! **A commit** is what was written together. Its header has 40 bytes: `FJc1`, a byte that is 1 if
//! this is the seal, three zeros, the commit's number in the segment (`u64`), the offset up to
//! which the segment was on the disk when this was written (`u64`, `synced`), the length of the
//! records (`u64`), their number (`u32`), and the CRC-32 of the stamp, the header's own offset and
//! the 36 bytes before. So bytes of another file, or of a journal in a value, are never taken for a
//! commit. A segment that is followed by another one ends with a seal, a commit without records.
//!
//! **A record** has a header of 16 bytes: the CRC-32 of everything behind it, its kind, the kind of
//! an outcome (0: returned, 1: failed, 2: abandoned), two zeros, and the length of its body
//! (`u64`). Its body has, by its kind:
//!
//! - kind 1, a call: id, lengths of name, function and version (`u32` each), the three texts
//! - kind 2, an outcome: task key (16 bytes), index (`u64`), call's id, number of blobs (`u32`
//!   each), lengths of blobs (`u64` each), value, blobs
//! - kind 3, a slot: number (`u64`), length of name, number of blobs (`u32` each), lengths of blobs
//!   (`u64` each), name, value, blobs
//! - kind 4, a removed slot: number (`u64`), length of name, 0 (`u32` each), name
//!
//! A segment names each call before its first outcome, so it can be read by itself.
//!
//! **The task key** is the first 16 bytes of a keyed BLAKE3 hash of the encoded argument and its
//! blobs; the hash's key is the BLAKE3 hash of the call's name, function and version. For a task
//! that takes outputs of others, the bytes that are hashed have a part for each argument: `v`, its
//! length (1 byte) and the encoded value, if that has at most 64 bytes; else `d` and the BLAKE3
//! hash of the lengths (`u64`) and bytes of the encoded value and its blobs. Before the parts of a
//! list are `l` and their number (`u32`). In the encoded value only arrays have blobs.

/// The version of the format that this build writes.
pub(crate) const VERSION: u32 = 1;

/// The kind of a segment's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    Outcomes,
    Slots,
}

impl SegmentKind {
    /// Returns the extension of the segment's file.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            SegmentKind::Outcomes => "outcomes",
            SegmentKind::Slots => "slots",
        }
    }
}

/// The sizes of a journal's files. Tests make them small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The length in bytes from which a segment of outcomes is sealed.
    pub(crate) outcomes: u64,
    /// The length in bytes from which a segment of slots is sealed.
    pub(crate) slots: u64,
    /// How many bytes of superseded slots there may be, beside as many as last values have.
    pub(crate) superseded: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        #[cfg(feature = "simulation")]
        if fiber_core::simulation::world().is_some() {
            return Limits { outcomes: 3000, slots: 2000, superseded: 4000 };
        }
        // Segments of slots are smaller, so that they are emptied and removed sooner.
        Limits { outcomes: 64 << 20, slots: 16 << 20, superseded: 32 << 20 }
    }
}

impl Limits {
    pub(crate) fn of(&self, kind: SegmentKind) -> u64 {
        match kind {
            SegmentKind::Outcomes => self.outcomes,
            SegmentKind::Slots => self.slots,
        }
    }
}

/// The header of a segment. Its first 12 and its last 4 bytes mean the same in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) kind: SegmentKind,
    /// The id of the journal, which all of its segments have.
    pub(crate) journal: [u8; 16],
    pub(crate) number: u32,
    /// Random. The checksums of the segment's commits include it, so bytes of another file are no
    /// commits here.
    pub(crate) stamp: u64,
}

/// Why bytes are no header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged,
    /// A newer build has written it.
    Newer(u32),
}

const SEGMENT_MAGIC: [u8; 8] = *b"FIBERJNL";

impl SegmentHeader {
    pub(crate) const LEN: usize = 64;

    pub(crate) fn encode(&self) -> [u8; SegmentHeader::LEN] {
        let mut bytes = [0; SegmentHeader::LEN];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = match self.kind {
            SegmentKind::Outcomes => 1,
            SegmentKind::Slots => 2,
        };
        bytes[16..32].copy_from_slice(&self.journal);
        bytes[32..36].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.stamp.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        if bytes.len() < SegmentHeader::LEN
            || bytes[..8] != SEGMENT_MAGIC
            || u32_at(bytes, 60) != crc32fast::hash(&bytes[..60])
        {
            return Err(HeaderError::Damaged);
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            version => return Err(HeaderError::Newer(version)),
        }
        let kind = match bytes[12] {
            1 => SegmentKind::Outcomes,
            2 => SegmentKind::Slots,
            _ => return Err(HeaderError::Damaged),
        };
        let mut journal = [0; 16];
        journal.copy_from_slice(&bytes[16..32]);
        Ok(SegmentHeader { kind, journal, number: u32_at(bytes, 32), stamp: u64_at(bytes, 40) })
    }
}

/// The header of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitHeader {
    /// Whether this is the last commit of a segment that is followed by another one.
    pub(crate) is_seal: bool,
    /// The number of the commit in its segment.
    pub(crate) sequence: u64,
    /// The offset up to which the segment was on disk when this was written.
    pub(crate) synced: u64,
    /// The length of the records in bytes.
    pub(crate) len: u64,
    /// The number of records.
    pub(crate) records: u32,
}

pub(crate) const COMMIT_MAGIC: [u8; 4] = *b"FJc1";

impl CommitHeader {
    pub(crate) const LEN: usize = 40;

    /// Returns the bytes of the header at this offset.
    pub(crate) fn encode(&self, stamp: u64, offset: u64) -> [u8; CommitHeader::LEN] {
        let mut bytes = [0; CommitHeader::LEN];
        bytes[..4].copy_from_slice(&COMMIT_MAGIC);
        bytes[4] = u8::from(self.is_seal);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.synced.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.records.to_le_bytes());
        let crc = commit_crc(&bytes[..36], stamp, offset);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns the header that these bytes at this offset are, if they are one.
    pub(crate) fn decode(bytes: &[u8], stamp: u64, offset: u64) -> Option<CommitHeader> {
        let is_one = bytes.len() >= CommitHeader::LEN
            && bytes[..4] == COMMIT_MAGIC
            && u32_at(bytes, 36) == commit_crc(&bytes[..36], stamp, offset);
        is_one.then(|| CommitHeader {
            is_seal: bytes[4] == 1,
            sequence: u64_at(bytes, 8),
            synced: u64_at(bytes, 16),
            len: u64_at(bytes, 24),
            records: u32_at(bytes, 32),
        })
    }
}

fn commit_crc(bytes: &[u8], stamp: u64, offset: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&stamp.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Returns the number at this position of bytes that are long enough.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// Returns the number at this position of bytes that are long enough.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
