//! The header before each payload in a stream between two ranks.

use super::super::call::CollectiveCall;

/// The size of a header in bytes.
pub(crate) const HEADER: usize = 32;
/// Payloads are padded to a multiple of this many bytes, so that elements are aligned.
const ALIGN: u64 = 8;

/// Says what the payload is that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A value of this many bytes, which the rank receives by its tag.
    Value { tag: Tag, bytes: u64 },
    /// The sender's data for a collective call, of this many bytes.
    Collective { call: CollectiveCall, bytes: u64 },
    /// The end: the sender's function has returned.
    End,
}

/// Which receiving method a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// `recv`, which names a rank.
    Direct = 0,
    /// `recv_left`: the value goes to the right neighbour.
    Rightwards,
    /// `recv_right`: the value goes to the left neighbour.
    Leftwards,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        match self {
            Header::Value { tag, bytes } => {
                out[1] = tag as u8;
                out[24..].copy_from_slice(&bytes.to_le_bytes());
            }
            Header::Collective { call, bytes } => {
                out[..4].copy_from_slice(&[1, call.operation, call.number_type, call.reduction]);
                out[4..8].copy_from_slice(&call.root.to_le_bytes());
                out[8..16].copy_from_slice(&call.sequence.to_le_bytes());
                out[16..24].copy_from_slice(&call.length.to_le_bytes());
                out[24..].copy_from_slice(&bytes.to_le_bytes());
            }
            Header::End => out[0] = 2,
        }
        out
    }

    /// Decodes a header. Returns `None` if the bytes are not a header.
    pub(super) fn decode(from: &[u8; HEADER]) -> Option<Header> {
        let number = |at: usize| {
            u64::from_le_bytes(from[at..at + 8].try_into().expect("eight bytes are eight bytes"))
        };
        let bytes = number(24);
        match (from[0], from[1]) {
            (0, tag) => {
                let tag = [Tag::Direct, Tag::Rightwards, Tag::Leftwards]
                    .get(usize::from(tag))
                    .copied()?;
                Some(Header::Value { tag, bytes })
            }
            (1, operation) => {
                let root =
                    u32::from_le_bytes(from[4..8].try_into().expect("four bytes are four bytes"));
                let call = CollectiveCall {
                    operation,
                    number_type: from[2],
                    reduction: from[3],
                    root,
                    sequence: number(8),
                    length: number(16),
                };
                Some(Header::Collective { call, bytes })
            }
            (2, _) => Some(Header::End),
            _ => None,
        }
    }

    /// Returns the size of the payload in bytes.
    pub(super) fn payload_bytes(self) -> u64 {
        match self {
            Header::Value { bytes, .. } | Header::Collective { bytes, .. } => bytes,
            Header::End => 0,
        }
    }
}

/// Returns the number of bytes that pad a payload.
pub(super) fn padding(bytes: u64) -> usize {
    (bytes.wrapping_neg() % ALIGN) as usize
}

#[cfg(test)]
mod tests {
    use super::super::super::call::Operation;
    use super::*;
    use crate::reduction::Reduction;

    #[test]
    fn a_decoded_header_equals_the_encoded_one() {
        let call = CollectiveCall::new::<f32>(Operation::Reduce, 7, 1 << 40)
            .with_reduction(Reduction::Max)
            .with_root(3);
        for header in [
            Header::Value { tag: Tag::Leftwards, bytes: 5 },
            Header::Collective { call, bytes: u64::MAX },
            Header::Collective { call: CollectiveCall::barrier(1), bytes: 0 },
            Header::End,
        ] {
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[9; HEADER]), None);
    }
}
