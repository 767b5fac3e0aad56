//! What a ring's owner and its ranks tell each other.

use bytes::{Buf, Bytes};
use fiber_core::codec;
use fiber_transport::Message;
use serde::{Deserialize, Serialize};

use crate::endpoint::MAIN;
use crate::mesh::ProcessRef;

/// A rank, for the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) process: ProcessRef,
    /// Where streams through shared memory are opened, if all ranks are on one host.
    pub(super) streams: Option<String>,
    /// The port that is reserved for the meeting of another framework; rank 0 has one.
    pub(super) port: Option<u16>,
}

/// What the owner tells a rank.
#[derive(Debug)]
pub(super) enum Order {
    /// The function's arguments. They come first.
    Arguments(Bytes),
    /// Its state in the last checkpoint, if it goes on from one, and the checkpoint's number.
    Restored(u64, Bytes),
    /// All ranks are there: begin.
    Members(Vec<Member>),
    /// Say what you are doing.
    Report,
}

/// What a rank tells its owner.
#[derive(Debug)]
pub(super) enum News {
    /// It can be reached.
    Joined(Member),
    /// Its state in a checkpoint, by the checkpoint's number.
    Checkpoint(u64, Bytes),
    /// Its function has returned a value (or failed, with this failure).
    Value(Bytes),
    Failure(Bytes),
    /// It can't go on.
    Trouble(Trouble),
    /// What it is doing, as the owner asked.
    Doing(Doing),
}

/// Why a rank can't go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Trouble {
    /// Nothing came, or left, for too long.
    Late { seconds: f64 },
    /// Another rank does something else.
    Mismatch { other: usize, mine: String, theirs: String },
    /// Another rank can't be reached any more.
    Lost { other: usize, problem: String },
    /// Another rank's function has ended.
    Finished { other: usize, mine: String },
}

/// What a rank is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Doing {
    /// Its function's own work.
    #[default]
    Working,
    /// This, together with other ranks.
    Together(String),
    /// Nothing more.
    Finished,
}

impl Order {
    pub(super) fn message(self) -> Message {
        match self {
            Order::Arguments(arguments) => Message { head: vec![MAIN, 0], body: arguments },
            Order::Restored(number, state) => {
                let mut head = vec![MAIN, 1];
                head.extend_from_slice(&number.to_le_bytes());
                Message { head, body: state }
            }
            Order::Members(members) => coded(2, &members),
            Order::Report => Message::new(vec![MAIN, 3]),
        }
    }

    /// The order in a message from which [`MAIN`] was taken.
    pub(super) fn read(mut message: Bytes) -> Option<Order> {
        match (!message.is_empty()).then(|| message.get_u8())? {
            0 => Some(Order::Arguments(message)),
            1 => Some(Order::Restored(number(&mut message)?, message)),
            2 => codec::decode(&message).ok().map(Order::Members),
            3 => Some(Order::Report),
            _ => None,
        }
    }
}

impl News {
    pub(super) fn message(self) -> Message {
        match self {
            News::Joined(member) => coded(0, &member),
            News::Checkpoint(number, state) => {
                let mut head = vec![MAIN, 1];
                head.extend_from_slice(&number.to_le_bytes());
                Message { head, body: state }
            }
            News::Value(value) => Message { head: vec![MAIN, 2], body: value },
            News::Failure(failure) => Message { head: vec![MAIN, 3], body: failure },
            News::Trouble(trouble) => coded(4, &trouble),
            News::Doing(doing) => coded(5, &doing),
        }
    }

    /// The news in a message from which [`MAIN`] was taken.
    pub(super) fn read(mut message: Bytes) -> Option<News> {
        match (!message.is_empty()).then(|| message.get_u8())? {
            0 => codec::decode(&message).ok().map(News::Joined),
            1 => Some(News::Checkpoint(number(&mut message)?, message)),
            2 => Some(News::Value(message)),
            3 => Some(News::Failure(message)),
            4 => codec::decode(&message).ok().map(News::Trouble),
            5 => codec::decode(&message).ok().map(News::Doing),
            _ => None,
        }
    }
}

fn number(message: &mut Bytes) -> Option<u64> {
    (message.len() >= 8).then(|| message.get_u64_le())
}

fn coded(kind: u8, value: &impl Serialize) -> Message {
    let mut head = vec![MAIN, kind];
    codec::append(&mut head, value).expect("what owner and ranks tell each other serialises");
    Message::new(head)
}
