//! Frames about blobs.
//!
//! ```text
//! MESSAGE  count u32  count × blob  INLINE blobs, each after padding…  bytes of the message…
//!              blob: INLINE  len u64
//!                    SHARED  len u64  mapping u128  offset u64  loan u64
//! MAPPING  mapping u128  lender u8          the memory's descriptor comes with the first byte
//!              lender: OWNER     of the memory
//!                      BORROWER  which passes on what is in it
//! RETURN   loan u64…                        the peer does not use these blobs any more
//! REQUEST  loan u64…                        the peer can't map these blobs: send their bytes
//! DATA     loan u64  bytes…                 the answer to a request, for each loan
//! ```
//! Numbers are little-endian. Only MESSAGE with INLINE blobs goes over nng. The bytes of an INLINE
//! blob begin at a multiple of 16 from the header of the frame, which a receiver of long frames has
//! at the start of its memory: so it reads arrays in place.

use std::io;

use bytes::{Buf, Bytes};
use fiber_values::blob::{Blob, MappingId};

use crate::frame::EXTENDED_HEADER_LEN;

const MESSAGE: u8 = 0;
const MAPPING: u8 = 1;
const RETURN: u8 = 2;
const REQUEST: u8 = 3;
const DATA: u8 = 4;

const OWNER: u8 = 0;
const BORROWER: u8 = 1;

const INLINE: u8 = 0;
const SHARED: u8 = 1;

/// The alignment of the bytes of INLINE blobs.
pub(crate) const ALIGNMENT: usize = 16;

/// Bytes of the shortest entry of a message's table.
const SHORTEST_ENTRY: usize = 9;

/// Identifies a blob that one side of a link has lent to the other.
pub(crate) type Loan = u64;

/// Where the receiver finds a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedPlace {
    pub(crate) mapping: MappingId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) loan: Loan,
}

/// A blob of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentBlob {
    Inline(Bytes),
    Shared(SharedPlace),
}

/// A received frame about blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlobFrame {
    Message { blobs: Vec<SentBlob>, bytes: Bytes },
    Mapping { id: MappingId, is_lenders_own: bool },
    Return(Vec<Loan>),
    Request(Vec<Loan>),
    Data(Loan, Bytes),
}

/// Returns the number of bytes before an INLINE blob, at this offset after the frame's header.
pub(crate) fn padding(offset: usize) -> usize {
    (EXTENDED_HEADER_LEN + offset).next_multiple_of(ALIGNMENT) - EXTENDED_HEADER_LEN - offset
}

/// Returns the start of the frame of a message with these blobs. The bytes of those without a place
/// follow it.
pub(crate) fn table(blobs: &[Blob], places: &[Option<SharedPlace>]) -> Vec<u8> {
    let mut table = vec![MESSAGE];
    table.extend_from_slice(&(blobs.len() as u32).to_le_bytes());
    for (blob, place) in blobs.iter().zip(places) {
        table.push(if place.is_some() { SHARED } else { INLINE });
        table.extend_from_slice(&(blob.len() as u64).to_le_bytes());
        if let Some(place) = place {
            table.extend_from_slice(&place.mapping.0.to_le_bytes());
            table.extend_from_slice(&place.offset.to_le_bytes());
            table.extend_from_slice(&place.loan.to_le_bytes());
        }
    }
    table
}

/// Returns the frame that introduces a mapping.
pub(crate) fn mapping(id: MappingId, is_own: bool) -> Vec<u8> {
    [&[MAPPING][..], &id.0.to_le_bytes(), &[if is_own { OWNER } else { BORROWER }]].concat()
}

/// Returns the frame that gives blobs back.
pub(crate) fn give_back(loans: &[Loan]) -> Vec<u8> {
    with_loans(RETURN, loans)
}

/// Returns the frame that asks for the bytes of blobs.
pub(crate) fn request(loans: &[Loan]) -> Vec<u8> {
    with_loans(REQUEST, loans)
}

/// Returns the start of the frame with the bytes of a blob.
pub(crate) fn data(loan: Loan) -> Vec<u8> {
    with_loans(DATA, &[loan])
}

fn with_loans(kind: u8, loans: &[Loan]) -> Vec<u8> {
    let mut frame = vec![kind];
    loans.iter().for_each(|loan| frame.extend_from_slice(&loan.to_le_bytes()));
    frame
}

impl BlobFrame {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is none.
    pub(crate) fn read(mut frame: Bytes) -> io::Result<BlobFrame> {
        read(&mut frame).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sent a malformed frame about blobs",
            )
        })
    }
}

fn read(frame: &mut Bytes) -> Option<BlobFrame> {
    let len = frame.len();
    match frame.try_get_u8().ok()? {
        MESSAGE => {
            let count = frame.try_get_u32_le().ok()? as usize;
            if frame.len() / SHORTEST_ENTRY < count {
                return None;
            }
            let entries: Vec<_> = (0..count).map(|_| entry(frame)).collect::<Option<_>>()?;
            let mut blob = |entry: Entry| entry.blob(frame, len);
            let blobs = entries.into_iter().map(&mut blob).collect::<Option<_>>()?;
            Some(BlobFrame::Message { blobs, bytes: std::mem::take(frame) })
        }
        MAPPING => {
            let id = MappingId(frame.try_get_u128_le().ok()?);
            let is_lenders_own = match frame.try_get_u8().ok()? {
                OWNER => true,
                BORROWER => false,
                _ => return None,
            };
            frame.is_empty().then_some(BlobFrame::Mapping { id, is_lenders_own })
        }
        RETURN => loans(frame).map(BlobFrame::Return),
        REQUEST => loans(frame).map(BlobFrame::Request),
        DATA => {
            let loan = frame.try_get_u64_le().ok()?;
            Some(BlobFrame::Data(loan, std::mem::take(frame)))
        }
        _ => None,
    }
}

enum Entry {
    Inline(usize),
    Shared(SharedPlace),
}

impl Entry {
    /// Returns the blob, whose bytes are next in a frame of `frame_len` bytes.
    fn blob(self, rest: &mut Bytes, frame_len: usize) -> Option<SentBlob> {
        let len = match self {
            Entry::Inline(len) => len,
            Entry::Shared(place) => return Some(SentBlob::Shared(place)),
        };
        let padding = padding(frame_len - rest.len());
        if len > rest.len().checked_sub(padding)? {
            return None;
        }
        rest.advance(padding);
        Some(SentBlob::Inline(rest.split_to(len)))
    }
}

fn entry(frame: &mut Bytes) -> Option<Entry> {
    let (kind, len) = (frame.try_get_u8().ok()?, frame.try_get_u64_le().ok()?);
    match kind {
        INLINE => usize::try_from(len).ok().map(Entry::Inline),
        SHARED => Some(Entry::Shared(SharedPlace {
            mapping: MappingId(frame.try_get_u128_le().ok()?),
            offset: frame.try_get_u64_le().ok()?,
            len,
            loan: frame.try_get_u64_le().ok()?,
        })),
        _ => None,
    }
}

fn loans(frame: &mut Bytes) -> Option<Vec<Loan>> {
    frame
        .len()
        .is_multiple_of(size_of::<Loan>())
        .then(|| std::iter::from_fn(|| frame.try_get_u64_le().ok()).collect())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(
            blobs in vec((vec(any::<u8>(), 0..40), any::<Option<(u128, u64, u64)>>()), 0..6),
            bytes in vec(any::<u8>(), 0..40),
            loans in vec(any::<Loan>(), 0..6),
        ) {
            let sent: Vec<_> = blobs
                .iter()
                .map(|(bytes, place)| match *place {
                    None => SentBlob::Inline(bytes.clone().into()),
                    Some((mapping, offset, loan)) => SentBlob::Shared(SharedPlace {
                        mapping: MappingId(mapping),
                        offset,
                        len: bytes.len() as u64,
                        loan,
                    }),
                })
                .collect();
            let places: Vec<_> = sent
                .iter()
                .map(|blob| match blob {
                    SentBlob::Inline(_) => None,
                    SentBlob::Shared(place) => Some(*place),
                })
                .collect();
            let private = blobs.iter().map(|(bytes, _)| Blob::private(bytes.clone().into()));
            let private: Vec<_> = private.collect();
            let mut frame = table(&private, &places);
            for blob in &sent {
                if let SentBlob::Inline(bytes) = blob {
                    frame.resize(frame.len() + padding(frame.len()), 0);
                    frame.extend_from_slice(bytes);
                }
            }
            frame.extend_from_slice(&bytes);
            let message = BlobFrame::Message { blobs: sent, bytes: bytes.clone().into() };
            let read = |frame: Vec<u8>| BlobFrame::read(frame.into()).unwrap();
            prop_assert_eq!(read(frame), message);
            prop_assert_eq!(read(give_back(&loans)), BlobFrame::Return(loans.clone()));
            prop_assert_eq!(read(request(&loans)), BlobFrame::Request(loans.clone()));
            for is_lenders_own in [true, false] {
                let (id, frame) = (MappingId(7), mapping(MappingId(7), is_lenders_own));
                prop_assert_eq!(read(frame), BlobFrame::Mapping { id, is_lenders_own });
            }
            let frame = [data(9), bytes.clone()].concat();
            prop_assert_eq!(read(frame), BlobFrame::Data(9, bytes.into()));
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in vec(any::<u8>(), 0..200), kind in 0u8..6) {
            let _ = BlobFrame::read([&[kind], &bytes[..]].concat().into());
        }
    }
}
