//! Records: what a commit consists of. The module `format` has their bytes.

use std::ops::Range;

use crate::format::{u32_at, u64_at};
use crate::{CallId, CallLabel, OutcomeKind, TaskKey};

/// The length of a record's header.
pub(crate) const HEADER_LEN: usize = 16;

const CALL: u8 = 1;
const OUTCOME: u8 = 2;
const PUT: u8 = 3;
const REMOVED: u8 = 4;

/// The beginning of a record, before the value's bytes and blobs.
pub(crate) struct Head {
    kind: u8,
    detail: u8,
    fixed: Vec<u8>,
}

impl Head {
    pub(crate) fn call(id: CallId, label: &CallLabel) -> Head {
        let parts = [&label.name, &label.function, &label.version];
        let mut fixed = id.to_le_bytes().to_vec();
        parts.iter().for_each(|part| fixed.extend((part.len() as u32).to_le_bytes()));
        parts.iter().for_each(|part| fixed.extend(part.as_bytes()));
        Head { kind: CALL, detail: 0, fixed }
    }

    pub(crate) fn outcome(
        call: CallId,
        key: TaskKey,
        index: u64,
        kind: OutcomeKind,
        blobs: &[&[u8]],
    ) -> Head {
        let mut fixed = Vec::with_capacity(32 + 8 * blobs.len());
        fixed.extend(key.0);
        fixed.extend(index.to_le_bytes());
        fixed.extend(call.to_le_bytes());
        fixed.extend((blobs.len() as u32).to_le_bytes());
        blobs.iter().for_each(|blob| fixed.extend((blob.len() as u64).to_le_bytes()));
        Head { kind: OUTCOME, detail: kind.to_byte(), fixed }
    }

    pub(crate) fn put(slots: &str, slot: u64, blobs: &[&[u8]]) -> Head {
        let mut fixed = Vec::with_capacity(16 + 8 * blobs.len() + slots.len());
        fixed.extend(slot.to_le_bytes());
        fixed.extend((slots.len() as u32).to_le_bytes());
        fixed.extend((blobs.len() as u32).to_le_bytes());
        blobs.iter().for_each(|blob| fixed.extend((blob.len() as u64).to_le_bytes()));
        fixed.extend(slots.as_bytes());
        Head { kind: PUT, detail: 0, fixed }
    }

    pub(crate) fn removed(slots: &str, slot: u64) -> Head {
        Head { kind: REMOVED, detail: 0, ..Head::put(slots, slot, &[]) }
    }

    /// Returns the beginning of a record whose value consists of these bytes.
    pub(crate) fn encode<'a>(&self, value: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
        let len = self.fixed.len() + value.clone().map(<[u8]>::len).sum::<usize>();
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.fixed.len());
        bytes.extend([0, 0, 0, 0, self.kind, self.detail, 0, 0]);
        bytes.extend((len as u64).to_le_bytes());
        bytes.extend(&self.fixed);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[4..]);
        value.for_each(|part| crc.update(part));
        bytes[..4].copy_from_slice(&crc.finalize().to_le_bytes());
        bytes
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    crc: u32,
    kind: u8,
    detail: u8,
    /// The length of the body.
    pub(crate) len: u64,
}

impl RecordHeader {
    /// Reads a header from bytes that are long enough.
    pub(crate) fn decode(bytes: &[u8]) -> RecordHeader {
        let (crc, len) = (u32_at(bytes, 0), u64_at(bytes, 8));
        RecordHeader { crc, kind: bytes[4], detail: bytes[5], len }
    }

    /// Returns whether this is the checksum of a record.
    pub(crate) fn has_crc(&self, crc: u32) -> bool {
        self.crc == crc
    }
}

/// A record, without the value, which is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Call(CallId, CallLabel),
    Outcome { call: CallId, key: TaskKey, index: u64, kind: OutcomeKind, value: Value },
    Put { slots: String, slot: u64, value: Value },
    Removed { slots: String, slot: u64 },
}

/// Where a value is in the body of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) bytes: Range<usize>,
    pub(crate) blobs: Vec<Range<usize>>,
}

impl Value {
    /// Lays out a value that ends with the body, from the lengths of its blobs.
    fn behind(start: usize, lens: &[u8], body: usize) -> Option<Value> {
        let lens = lens.chunks_exact(8).map(|len| u64_at(len, 0) as usize);
        let total = lens.clone().try_fold(0usize, usize::checked_add)?;
        let mut at = body.checked_sub(total).filter(|at| *at >= start)?;
        let bytes = start..at;
        let blobs = lens
            .map(|len| {
                at += len;
                at - len..at
            })
            .collect();
        Some(Value { bytes, blobs })
    }
}

/// The length of the part of a body that says how long the rest of the head is.
const FIXED_LEN: usize = 32;

/// Reads a record whose checksum is right. `head` returns the first bytes of its body. Returns
/// `None` if it is no record of this version.
pub(crate) fn decode<E>(
    header: &RecordHeader,
    mut head: impl FnMut(usize) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<Record>, E> {
    let body = header.len as usize;
    let Some(first) = head(FIXED_LEN.min(body))? else { return Ok(None) };
    let Some(len) = head_len(header.kind, &first) else { return Ok(None) };
    if len > body {
        return Ok(None);
    }
    let Some(head) = (if len <= first.len() { Some(first) } else { head(len)? }) else {
        return Ok(None);
    };
    Ok(decode_head(header, &head[..len]))
}

/// Returns the length of the whole head.
fn head_len(kind: u8, first: &[u8]) -> Option<usize> {
    let fixed = match kind {
        CALL | REMOVED | PUT => 16,
        OUTCOME => 32,
        _ => return None,
    };
    if first.len() < fixed {
        return None;
    }
    let count = |at: usize| u32_at(first, at) as usize;
    Some(match kind {
        CALL => 16 + count(4) + count(8) + count(12),
        OUTCOME => 32 + 8 * count(28),
        _ => 16 + 8 * count(12) + count(8),
    })
}

fn decode_head(header: &RecordHeader, head: &[u8]) -> Option<Record> {
    let body = header.len as usize;
    let text = |range: Range<usize>| Some(std::str::from_utf8(head.get(range)?).ok()?.to_owned());
    match header.kind {
        CALL => {
            let mut at = 16;
            let mut part = |len: usize| {
                at += u32_at(head, len) as usize;
                text(at - u32_at(head, len) as usize..at)
            };
            let (name, function, version) = (part(4)?, part(8)?, part(12)?);
            Some(Record::Call(u32_at(head, 0), CallLabel { name, function, version }))
        }
        OUTCOME => {
            let mut key = TaskKey([0; 16]);
            key.0.copy_from_slice(&head[..16]);
            Some(Record::Outcome {
                call: u32_at(head, 24),
                key,
                index: u64_at(head, 16),
                kind: OutcomeKind::from_byte(header.detail)?,
                value: Value::behind(head.len(), &head[32..], body)?,
            })
        }
        PUT => {
            let name = 16 + 8 * u32_at(head, 12) as usize;
            let value = Value::behind(head.len(), &head[16..name], body)?;
            Some(Record::Put { slots: text(name..head.len())?, slot: u64_at(head, 0), value })
        }
        _ => Some(Record::Removed { slots: text(16..head.len())?, slot: u64_at(head, 0) }),
    }
}

/// Checks and reads a whole record.
pub(crate) fn decode_whole(bytes: &[u8]) -> Option<Record> {
    if bytes.len() < HEADER_LEN {
        return None;
    }
    let header = RecordHeader::decode(bytes);
    let body = &bytes[HEADER_LEN..];
    if header.len != body.len() as u64 || !header.has_crc(crc32fast::hash(&bytes[4..])) {
        return None;
    }
    let len = head_len(header.kind, &body[..FIXED_LEN.min(body.len())])?;
    decode_head(&header, body.get(..len)?)
}
