//! Messages between a ring's coordinator and its ranks.

use std::time::Duration;

use bytes::{Buf, Bytes};
use fiber_core::RankActivity;
use fiber_transport::{Message, is_near};
use fiber_values::codec::{self, EncodedValue};
use serde::{Deserialize, Serialize};

use fiber_runtime::endpoint::MAIN;
use fiber_runtime::mesh::ProcessRef;

/// How the other ranks reach a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RankAddress {
    pub(super) process: ProcessRef,
    /// The socket at which ranks that share its machine open streams through shared memory.
    pub(super) streams: Option<String>,
    /// The port reserved for another framework's rendezvous. Only rank 0 has one.
    pub(super) port: Option<u16>,
}

impl RankAddress {
    /// Returns the socket for streams through shared memory; `None` if this process can't reach it.
    pub(super) fn near_streams(&self) -> Option<&str> {
        self.streams.as_deref().filter(|_| is_near(&self.process.address))
    }
}

/// A message from the coordinator to a rank.
#[derive(Clone, Debug)]
pub(super) enum CoordinatorMessage {
    /// The function's arguments. They are the first message.
    Arguments(EncodedValue),
    /// The rank's state in the checkpoint from which the ring continues, with its number.
    Checkpoint(u64, EncodedValue),
    /// The addresses of all ranks, which have all joined: the function may start.
    Start(Vec<RankAddress>),
    /// Asks the rank what it is doing.
    QueryActivity,
    /// The rank's checkpoint of this number is recorded.
    CheckpointRecorded(u64),
}

/// A message from a rank to the coordinator.
#[derive(Debug)]
pub(super) enum RankMessage {
    /// The rank can be reached at this address.
    Joined(RankAddress),
    /// The rank's state in a checkpoint, with its number.
    Checkpoint(u64, EncodedValue),
    /// The encoded value that the function has returned.
    Value(EncodedValue),
    /// The encoded failure of the function.
    Failure(Bytes),
    /// The rank cannot continue.
    Error(StreamError),
    /// The rank has begun another activity.
    Activity(RankActivity),
}

/// Why a rank cannot continue to exchange data with another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum StreamError {
    /// Nothing arrived, and nothing could be sent, within the ring's timeout.
    TimedOut(Duration),
    /// The other rank makes a different call.
    Mismatch { other: usize, own: String, theirs: String },
    /// The other rank cannot be reached.
    Disconnected { other: usize, problem: String },
    /// This rank can't accept the streams of others.
    NotAccepted(String),
    /// The other rank's function has returned, and this rank waits for it.
    FunctionReturned { other: usize, own: String },
}

impl CoordinatorMessage {
    pub(super) fn encode(self) -> Message {
        match self {
            CoordinatorMessage::Arguments(arguments) => {
                Message::with_value(vec![MAIN, 0], arguments)
            }
            CoordinatorMessage::Checkpoint(number, state) => with_number(1, number, state),
            CoordinatorMessage::Start(addresses) => serialized(2, &addresses),
            CoordinatorMessage::QueryActivity => Message::new(vec![MAIN, 3]),
            CoordinatorMessage::CheckpointRecorded(number) => {
                with_number(4, number, EncodedValue::default())
            }
        }
    }

    /// Decodes a message without its leading [`MAIN`] byte.
    pub(super) fn decode(mut message: EncodedValue) -> Option<CoordinatorMessage> {
        match message.bytes.try_get_u8().ok()? {
            0 => Some(CoordinatorMessage::Arguments(message)),
            1 => Some(CoordinatorMessage::Checkpoint(number(&mut message)?, message)),
            2 => codec::decode(&message.bytes).ok().map(CoordinatorMessage::Start),
            3 => Some(CoordinatorMessage::QueryActivity),
            4 => number(&mut message).map(CoordinatorMessage::CheckpointRecorded),
            _ => None,
        }
    }
}

impl RankMessage {
    pub(super) fn encode(self) -> Message {
        match self {
            RankMessage::Joined(address) => serialized(0, &address),
            RankMessage::Checkpoint(number, state) => with_number(1, number, state),
            RankMessage::Value(value) => Message::with_value(vec![MAIN, 2], value),
            RankMessage::Failure(failure) => Message::with_body(vec![MAIN, 3], failure),
            RankMessage::Error(error) => serialized(4, &error),
            RankMessage::Activity(activity) => serialized(5, &activity),
        }
    }

    /// Decodes a message without its leading [`MAIN`] byte.
    pub(super) fn decode(mut message: EncodedValue) -> Option<RankMessage> {
        match message.bytes.try_get_u8().ok()? {
            0 => codec::decode(&message.bytes).ok().map(RankMessage::Joined),
            1 => Some(RankMessage::Checkpoint(number(&mut message)?, message)),
            2 => Some(RankMessage::Value(message)),
            3 => Some(RankMessage::Failure(message.bytes)),
            4 => codec::decode(&message.bytes).ok().map(RankMessage::Error),
            5 => codec::decode(&message.bytes).ok().map(RankMessage::Activity),
            _ => None,
        }
    }
}

fn number(message: &mut EncodedValue) -> Option<u64> {
    message.bytes.try_get_u64_le().ok()
}

fn with_number(kind: u8, number: u64, value: EncodedValue) -> Message {
    let mut head = vec![MAIN, kind];
    head.extend_from_slice(&number.to_le_bytes());
    Message::with_value(head, value)
}

fn serialized(kind: u8, value: &impl Serialize) -> Message {
    let mut head = vec![MAIN, kind];
    codec::append(&mut head, value).expect("messages between coordinator and ranks serialize");
    Message::new(head)
}

#[cfg(test)]
mod tests {
    use fiber_core::ProcessId;

    use super::*;

    fn near_streams(address: &str) -> Option<String> {
        let process = ProcessRef { id: ProcessId::random(), address: address.into() };
        let address = RankAddress { process, streams: Some("fiber-streams".into()), port: None };
        address.near_streams().map(str::to_string)
    }

    #[test]
    fn only_ranks_that_are_reached_by_a_unix_socket_share_memory() {
        assert!(near_streams("unix:fiber-a").is_some());
        assert!(near_streams("near:another-machine|fiber-a|nng:tcp://10.0.0.1:1").is_none());
    }
}
