//! Outcomes of tasks.

use bytes::Bytes;

/// How a task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// It has returned.
    Returned,
    /// It has failed by itself. The bytes are the encoded failure.
    Failed,
    /// It was abandoned, because its workers died. The bytes are what the pool has encoded.
    Abandoned,
}

impl OutcomeKind {
    /// Returns whether the task has no result.
    pub(crate) fn is_failure(self) -> bool {
        self != OutcomeKind::Returned
    }

    pub(crate) fn to_byte(self) -> u8 {
        match self {
            OutcomeKind::Returned => 0,
            OutcomeKind::Failed => 1,
            OutcomeKind::Abandoned => 2,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<OutcomeKind> {
        [OutcomeKind::Returned, OutcomeKind::Failed, OutcomeKind::Abandoned]
            .into_iter()
            .find(|kind| kind.to_byte() == byte)
    }
}

/// A recorded outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How the task has ended.
    pub kind: OutcomeKind,
    /// The encoded result.
    pub bytes: Bytes,
    /// The arrays of the result, which are beside its bytes.
    pub blobs: Vec<Bytes>,
}
