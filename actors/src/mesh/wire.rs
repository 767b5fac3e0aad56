//! What nodes say to each other on behalf of their actors.
//!
//! ```text
//! MESH  CALL    call u64  actor u64  method: offset u64, name u64  message…     call 0: no answer is wanted
//! MESH  ASK     call u64  question…
//! MESH  ANSWER  call u64  value…
//! MESH  FAILED  call u64  failure…
//! MESH  BEAT    0 u64                          a sign of life
//! MESH  PORT    call u64  port u64  body…        answered like a call
//! ```
//! Numbers are little-endian; message, question, value and failure are MessagePack.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use fiber_core::entry::EntryRef;
use fiber_core::{ExitReason, Failure, ProcessId, Result, codec};
use fiber_transport::Message;
use serde::{Deserialize, Serialize};

use crate::endpoint::MESH;

const CALL: u8 = 0;
const ASK: u8 = 1;
const ANSWER: u8 = 2;
const FAILED: u8 = 3;
const BEAT: u8 = 4;
const PORT: u8 = 5;

/// Where a frame carries its call's id.
const CALL_ID: std::ops::Range<usize> = 2..10;
/// Bytes before the body of a message to a port.
pub(crate) const PORT_HEAD: usize = 18;
/// Frames from this length on are handed to the link as they are; shorter ones are copied together.
const LONG: usize = 16 << 10;

/// A call, told apart from others between the same two nodes.
pub(crate) type CallId = u64;

/// The call that wants no answer.
pub(crate) const NO_ANSWER: CallId = 0;

/// An actor of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ActorId(pub(crate) u64);

impl ActorId {
    /// The actor that a process was started for.
    pub(crate) const HOSTED: ActorId = ActorId(0);
}

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PortId(pub(crate) u64);

impl PortId {
    /// Not a port: messages to it change who holds the others.
    pub(crate) const HOLDERS: PortId = PortId(0);
}

/// A node and where it can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRef {
    pub(crate) id: ProcessId,
    pub(crate) address: Arc<str>,
}

/// A question to a node. It is answered when there is something to tell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Where is the incarnation after this one of an actor that you own? Answered by a [`Place`].
    Where { actor: ActorId, after: u64 },
    /// Which incarnation is the current one, or the next? Answered by a number.
    Incarnation { actor: ActorId },
    /// How did this incarnation end? Answered by an [`End`].
    Fate { actor: ActorId, incarnation: u64 },
    /// How did an actor end for good? Answered by an [`ExitReason`].
    Ended { actor: ActorId },
    /// Has all arrived that was sent before this? Answered when it has.
    Arrived,
}

/// Where an owned actor is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    At {
        runtime: ProcessRef,
        incarnation: u64,
    },
    /// Nowhere, and it will not be started again.
    Gone(ExitReason),
}

/// How an incarnation ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) reason: ExitReason,
    /// The incarnation that was the last to end.
    pub(crate) incarnation: u64,
    pub(crate) gone: bool,
}

/// A call that is to be sent: a whole frame, but for its id.
#[derive(Clone, Debug)]
pub(crate) struct Payload(Vec<u8>);

impl Payload {
    /// A call of `method` at `actor`, with a message of any length.
    pub(crate) fn call<M: Serialize>(
        actor: ActorId,
        method: EntryRef,
        message: &M,
    ) -> Result<Payload> {
        let mut frame = Vec::with_capacity(96);
        frame.extend_from_slice(&[MESH, CALL]);
        for number in [NO_ANSWER, actor.0, method.offset, method.name] {
            frame.extend_from_slice(&number.to_le_bytes());
        }
        codec::append(&mut frame, message)?;
        Ok(Payload(frame))
    }

    /// A question to the node itself.
    pub(crate) fn ask(question: &Question) -> Payload {
        let mut frame = vec![MESH, ASK];
        frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
        codec::append(&mut frame, question).expect("questions are made of what serialises");
        Payload(frame)
    }

    /// What began as [`port_head`].
    pub(crate) fn raw(frame: Vec<u8>) -> Payload {
        Payload(frame)
    }

    /// Bytes of the message.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The frame, with its call's id.
    pub(crate) fn into_message(mut self, call: CallId) -> Message {
        self.0[CALL_ID].copy_from_slice(&call.to_le_bytes());
        message(self.0)
    }
}

fn message(frame: Vec<u8>) -> Message {
    if frame.len() < LONG {
        Message::new(frame)
    } else {
        Message { head: Vec::new(), body: frame.into() }
    }
}

/// The beginning of a message to a port; its body is to be appended.
pub(crate) fn port_head(port: PortId) -> Vec<u8> {
    let mut frame = Vec::with_capacity(64);
    begin_port(&mut frame, port);
    frame
}

pub(crate) fn begin_port(frame: &mut Vec<u8>, port: PortId) {
    frame.extend_from_slice(&[MESH, PORT]);
    frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
    frame.extend_from_slice(&port.0.to_le_bytes());
}

/// The beginning of an answer; its value is to be appended.
pub(crate) fn answer_head() -> Vec<u8> {
    let mut frame = Vec::with_capacity(64);
    frame.extend_from_slice(&[MESH, ANSWER]);
    frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
    frame
}

/// An answer that began as [`answer_head`].
pub(crate) fn answer(call: CallId, mut frame: Vec<u8>) -> Message {
    frame[CALL_ID].copy_from_slice(&call.to_le_bytes());
    message(frame)
}

/// The value in an answer that began as [`answer_head`].
pub(crate) fn answer_value(frame: Vec<u8>) -> Bytes {
    Bytes::from(frame).slice(CALL_ID.end..)
}

/// The news that a call has failed.
pub(crate) fn failed(call: CallId, failure: &CallFailure) -> Message {
    let mut frame = vec![MESH, FAILED];
    frame.extend_from_slice(&call.to_le_bytes());
    codec::append(&mut frame, failure).expect("a failure is made of text, which serialises");
    message(frame)
}

/// A sign of life.
pub(crate) fn beat() -> Message {
    let mut frame = vec![MESH, BEAT];
    frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
    message(frame)
}

pub(crate) fn is_beat(message: &[u8]) -> bool {
    message.starts_with(&[MESH, BEAT])
}

/// Why a call was not answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CallFailure {
    /// The message, its handler or its answer.
    Failed(Failure),
    /// The actor ended.
    Stopped(ExitReason),
    /// Too much waits for the actor already.
    Full { capacity: usize },
}

/// Why an actor can't be reached of which nothing is known.
pub(crate) fn unknown() -> ExitReason {
    ExitReason::NotStarted("there is no such actor in its process (any more)".into())
}

/// A frame that came.
pub(crate) enum Frame {
    Call { call: CallId, actor: ActorId, method: EntryRef, message: Bytes },
    Ask { call: CallId, question: Question },
    Port { call: CallId, port: PortId, body: Bytes },
    Answer { call: CallId, value: Bytes },
    Failed { call: CallId, failure: CallFailure },
    Beat,
}

impl Frame {
    /// Reads a frame. `None` if it is none: its sender has the key, and so this is a bug, not an
    /// attack.
    pub(crate) fn read(mut frame: Bytes) -> Option<Frame> {
        if frame.len() < CALL_ID.end {
            return None;
        }
        let (_, kind, call) = (frame.get_u8(), frame.get_u8(), frame.get_u64_le());
        match kind {
            CALL if frame.len() >= 24 => {
                let actor = ActorId(frame.get_u64_le());
                let method = EntryRef { offset: frame.get_u64_le(), name: frame.get_u64_le() };
                Some(Frame::Call { call, actor, method, message: frame })
            }
            PORT if frame.len() >= 8 => {
                let port = PortId(frame.get_u64_le());
                Some(Frame::Port { call, port, body: frame })
            }
            ASK => codec::decode(&frame).ok().map(|question| Frame::Ask { call, question }),
            ANSWER => Some(Frame::Answer { call, value: frame }),
            FAILED => codec::decode(&frame).ok().map(|failure| Frame::Failed { call, failure }),
            BEAT => Some(Frame::Beat),
            _ => None,
        }
    }
}
