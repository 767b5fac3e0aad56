//! What a pool and its workers tell each other.
//!
//! The two frequent messages, assignments and results, are laid out by hand: integers are
//! little-endian, arguments and results follow as they are. The rest is small and goes through
//! serde.

use bytes::{Buf, Bytes};
use fiber_core::entry::EntryRef;
use fiber_core::{Error, Result, codec};
use fiber_transport::Message;
use serde::{Deserialize, Serialize};

use super::run::{CallId, PREFIX};
use crate::endpoint::MAIN;

const NOTE: u8 = 0;
const ASSIGNMENT: u8 = 1;
const RESULTS: u8 = 2;
const BROADCAST: u8 = 3;

/// Tasks for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) call: CallId,
    pub(crate) entry: EntryRef,
    /// How long one task may run, in nanoseconds; 0 for as long as it likes.
    pub(crate) timeout: u64,
    /// How many tasks belong together.
    pub(crate) chunk: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) arguments: Bytes,
}

/// Outcomes of tasks of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) call: CallId,
    /// How long the worker worked for them, in nanoseconds.
    pub(crate) busy: u64,
    /// Tasks that follow each other, in parts, with the length in bytes of each part's outcomes.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) outcomes: Bytes,
}

/// A part of [`Results`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) length: u32,
}

/// What else a worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerNote {
    /// It gives tasks back that it has not begun, because it is held up.
    Returned { call: CallId, first: u64, count: u64 },
    /// It has been running this task for a while.
    Running { call: CallId, index: u64 },
    /// This task has run longer than it may.
    Overdue { call: CallId, index: u64 },
    /// It was asked to end a cancelled call's tasks, and runs one.
    RunsCancelled,
}

/// What else a pool says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PoolNote {
    /// Tasks of this call need not be begun; with `kill`, those that run are to end as well.
    Cancel { call: CallId, kill: bool },
    /// There is no room for the outcomes of this call: tasks that have not begun are to come back.
    GiveBack { call: CallId },
    /// This broadcast value is not used any more.
    Forget { broadcast: u64 },
}

/// A message to a worker.
pub(crate) enum ToWorker {
    Assignment(Assignment),
    Broadcast { id: u64, value: Bytes },
    Note(PoolNote),
}

/// A message from a worker.
pub(crate) enum FromWorker {
    Results(Results),
    /// The outcome of one task, which is sent from where it is; it is read as
    /// [`FromWorker::Results`].
    Large {
        call: CallId,
        busy: u64,
        index: u64,
        prefix: [u8; PREFIX],
        outcome: Bytes,
    },
    Note(WorkerNote),
}

impl ToWorker {
    pub(crate) fn message(self) -> Message {
        match self {
            ToWorker::Assignment(assignment) => {
                let mut head = Vec::with_capacity(54);
                head.extend_from_slice(&[MAIN, ASSIGNMENT]);
                let numbers = [
                    assignment.call,
                    assignment.entry.offset,
                    assignment.entry.name,
                    assignment.timeout,
                    assignment.first,
                ];
                numbers.iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
                head.extend_from_slice(&assignment.chunk.to_le_bytes());
                head.extend_from_slice(&assignment.count.to_le_bytes());
                Message { head, body: assignment.arguments }
            }
            ToWorker::Broadcast { id, value } => {
                let mut head = vec![MAIN, BROADCAST];
                head.extend_from_slice(&id.to_le_bytes());
                Message { head, body: value }
            }
            ToWorker::Note(note) => note_message(&note),
        }
    }

    /// # Errors
    /// What was wrong with the message: the peer is not what it should be.
    pub(crate) fn read(mut message: Bytes) -> Result<ToWorker> {
        match message.try_get_u8() {
            Ok(NOTE) => codec::decode(&message).map(ToWorker::Note),
            Ok(ASSIGNMENT) if message.len() >= 48 => Ok(ToWorker::Assignment(Assignment {
                call: message.get_u64_le(),
                entry: EntryRef { offset: message.get_u64_le(), name: message.get_u64_le() },
                timeout: message.get_u64_le(),
                first: message.get_u64_le(),
                chunk: message.get_u32_le(),
                count: message.get_u32_le(),
                arguments: message,
            })),
            Ok(BROADCAST) if message.len() >= 8 => {
                Ok(ToWorker::Broadcast { id: message.get_u64_le(), value: message })
            }
            _ => Err(nonsense()),
        }
    }
}

impl FromWorker {
    pub(crate) fn message(self) -> Message {
        match self {
            FromWorker::Results(Results { call, busy, pieces, outcomes }) => {
                Message { head: results_head(call, busy, &pieces), body: outcomes }
            }
            FromWorker::Large { call, busy, index, prefix, outcome } => {
                let piece =
                    Piece { first: index, count: 1, length: (PREFIX + outcome.len()) as u32 };
                let mut head = results_head(call, busy, &[piece]);
                head.extend_from_slice(&prefix);
                Message { head, body: outcome }
            }
            FromWorker::Note(note) => note_message(&note),
        }
    }

    /// # Errors
    /// What was wrong with the message: the peer is not what it should be.
    pub(crate) fn read(mut message: Bytes) -> Result<FromWorker> {
        match message.try_get_u8() {
            Ok(NOTE) => codec::decode(&message).map(FromWorker::Note),
            Ok(RESULTS) if message.len() >= 20 => {
                let (call, busy, count) =
                    (message.get_u64_le(), message.get_u64_le(), message.get_u32_le() as usize);
                if message.len() / 16 < count {
                    return Err(nonsense());
                }
                let piece = |message: &mut Bytes| Piece {
                    first: message.get_u64_le(),
                    count: message.get_u32_le(),
                    length: message.get_u32_le(),
                };
                let pieces: Vec<_> = (0..count).map(|_| piece(&mut message)).collect();
                let length: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
                if length != message.len() as u64 {
                    return Err(nonsense());
                }
                Ok(FromWorker::Results(Results { call, busy, pieces, outcomes: message }))
            }
            _ => Err(nonsense()),
        }
    }
}

fn results_head(call: CallId, busy: u64, pieces: &[Piece]) -> Vec<u8> {
    let mut head = Vec::with_capacity(22 + 16 * pieces.len() + PREFIX);
    head.extend_from_slice(&[MAIN, RESULTS]);
    head.extend_from_slice(&call.to_le_bytes());
    head.extend_from_slice(&busy.to_le_bytes());
    head.extend_from_slice(&(pieces.len() as u32).to_le_bytes());
    for piece in pieces {
        head.extend_from_slice(&piece.first.to_le_bytes());
        head.extend_from_slice(&piece.count.to_le_bytes());
        head.extend_from_slice(&piece.length.to_le_bytes());
    }
    head
}

fn note_message<T: Serialize>(note: &T) -> Message {
    let mut head = vec![MAIN, NOTE];
    codec::append(&mut head, note).expect("notes are made of what serialises");
    Message::new(head)
}

fn nonsense() -> Error {
    Error::decode("a message between a pool and a worker", "it has another layout")
}
