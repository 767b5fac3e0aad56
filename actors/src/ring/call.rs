//! What ranks do together, and the headers by which they see that all do the same.

use super::element::{self, Number, Reduction};

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    Barrier = 0,
    Broadcast,
    Reduce,
    AllReduce,
    AllGather,
    ReduceScatter,
    Gather,
    Scatter,
}

const NAMES: [&str; 8] = [
    "barrier",
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "gather",
    "scatter",
];
/// No reduction, or no root.
const NONE: u8 = u8::MAX;

/// One collective as a rank sees it. All ranks have to see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    operation: u8,
    element: u8,
    reduction: u8,
    root: u32,
    /// Counted from 1.
    number: u64,
    /// QueueStream.
    length: u64,
}

impl Call {
    pub(super) fn barrier(number: u64) -> Call {
        Call {
            operation: Operation::Barrier as u8,
            element: 0,
            reduction: NONE,
            root: u32::MAX,
            number,
            length: 0,
        }
    }

    pub(super) fn new<T: Number>(operation: Operation, number: u64, length: usize) -> Call {
        Call {
            operation: operation as u8,
            element: T::KIND as u8,
            length: length as u64,
            ..Call::barrier(number)
        }
    }

    pub(super) fn reducing(self, how: Reduction) -> Call {
        Call { reduction: how as u8, ..self }
    }

    pub(super) fn from(self, root: usize) -> Call {
        Call { root: root as u32, ..self }
    }

    /// In words: `all_reduce (sum) of 1024 f32, its 5th collective`.
    pub(super) fn describe(&self) -> String {
        let mut words = NAMES.get(usize::from(self.operation)).copied().unwrap_or("?").to_string();
        if let Some(how) = Reduction::ALL.get(usize::from(self.reduction)) {
            words.push_str(&format!(" ({})", how.name()));
        }
        if self.root != u32::MAX {
            words.push_str(&format!(" with root {}", self.root));
        }
        if self.operation != Operation::Barrier as u8 && self.operation != Operation::Scatter as u8
        {
            words.push_str(&format!(
                " of {} {}",
                self.length,
                element::NumberType::name(self.element)
            ));
        }
        words.push_str(&format!(", its collective number {}", self.number));
        words
    }
}

/// What is sent before each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A value for whoever receives by this tag, of so many bytes.
    Message { tag: Tag, bytes: u64 },
    /// A part in a collective, of so many bytes.
    Call { call: Call, bytes: u64 },
    /// The rank's function has ended.
    Bye,
}

/// How a value is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    /// To a rank by its number.
    Direct = 0,
    /// To the right neighbour.
    Rightwards,
    /// To the left neighbour.
    Leftwards,
}

/// Bytes of a header.
pub(super) const HEADER: usize = 32;
/// Payloads are filled up to a multiple of this, so that elements lie where they may.
pub(super) const ALIGN: u64 = 8;

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        match self {
            Header::Message { tag, bytes } => {
                out[1] = tag as u8;
                out[24..].copy_from_slice(&bytes.to_le_bytes());
            }
            Header::Call { call, bytes } => {
                out[..4].copy_from_slice(&[1, call.operation, call.element, call.reduction]);
                out[4..8].copy_from_slice(&call.root.to_le_bytes());
                out[8..16].copy_from_slice(&call.number.to_le_bytes());
                out[16..24].copy_from_slice(&call.length.to_le_bytes());
                out[24..].copy_from_slice(&bytes.to_le_bytes());
            }
            Header::Bye => out[0] = 2,
        }
        out
    }

    /// The header in these bytes; `None` if it is none.
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
                Some(Header::Message { tag, bytes })
            }
            (1, operation) => {
                let root =
                    u32::from_le_bytes(from[4..8].try_into().expect("four bytes are four bytes"));
                let (element, reduction) = (from[2], from[3]);
                let call = Call {
                    operation,
                    element,
                    reduction,
                    root,
                    number: number(8),
                    length: number(16),
                };
                Some(Header::Call { call, bytes })
            }
            (2, _) => Some(Header::Bye),
            _ => None,
        }
    }

    pub(super) fn bytes(self) -> u64 {
        match self {
            Header::Message { bytes, .. } | Header::Call { bytes, .. } => bytes,
            Header::Bye => 0,
        }
    }
}

/// Bytes that fill a payload up.
pub(super) fn padding(bytes: u64) -> usize {
    (bytes.wrapping_neg() % ALIGN) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_wire() {
        let call = Call::new::<f32>(Operation::Reduce, 7, 1 << 40).reducing(Reduction::Max).from(3);
        for header in [
            Header::Message { tag: Tag::Leftwards, bytes: 5 },
            Header::Call { call, bytes: u64::MAX },
            Header::Call { call: Call::barrier(1), bytes: 0 },
            Header::Bye,
        ] {
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[9; HEADER]), None);
    }

    #[test]
    fn a_call_is_put_into_words() {
        let call = Call::new::<f32>(Operation::AllReduce, 5, 1024).reducing(Reduction::Sum);
        assert_eq!(call.describe(), "all_reduce (sum) of 1024 f32, its collective number 5");
    }
}
