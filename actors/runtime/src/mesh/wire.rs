//! The frames between processes on behalf of their actors and shared objects.
//!
//! ```text
//! MESH  CALL       call u64  actor u64  method: offset u64, name u64  message…  call 0: no answer
//! MESH  TERMS      call u64  actor u64  method  urgent u8  time left in ns u64  message…
//! MESH  QUERY      call u64  query…
//! MESH  ANSWER     call u64  value…
//! MESH  FAILED     call u64  failure…
//! MESH  HEARTBEAT  0 u64
//! MESH  PORT       call u64  port u64  body…                              answered like a call
//! ```
//! Numbers are little-endian. Message, query, value and failure are MessagePack.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fiber_core::stats::ActorStats;
use fiber_core::{Error, ExitReason, Failure, ProcessId, Result};
use fiber_transport::{Link, Message, Received};
use fiber_values::blob::Blobs;
use fiber_values::codec;
use fiber_values::entry::EntryRef;
use serde::{Deserialize, Serialize};

use super::fan_out::FanOut;
use crate::endpoint::MESH;

const CALL: u8 = 0;
const QUERY: u8 = 1;
const ANSWER: u8 = 2;
const FAILED: u8 = 3;
const HEARTBEAT: u8 = 4;
const PORT: u8 = 5;
/// A call with terms.
const TERMS: u8 = 6;

/// The position of the call's id in a frame.
const CALL_ID: std::ops::Range<usize> = 2..10;
/// The position of the actor's number in a call.
const ACTOR: std::ops::Range<usize> = 10..18;
/// The position of the time that is left in a call with terms.
const TIME_LEFT: std::ops::Range<usize> = 35..CALL_HEAD;
/// Bytes before the body of a message to a port.
pub(crate) const PORT_HEAD: usize = 18;
/// Bytes before the message of a call, at most.
const CALL_HEAD: usize = 43;
/// The length, in bytes, from which frames are passed to the link as they are. Shorter ones are
/// copied together.
const LONG: usize = 16 << 10;

/// The number of a call between two processes.
pub(super) type CallId = u64;

/// The terms of a call, which few calls have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Whether the actor gets the message before those that are not urgent.
    pub urgent: bool,
    /// How much time is left until nobody waits for the answer.
    pub time_left: Option<Duration>,
}

/// The id of a message that wants no answer.
pub(crate) const NO_ANSWER: CallId = 0;

/// The number of an actor in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActorId(pub u64);

impl ActorId {
    /// The number of an actor that is chosen when its message is sent.
    pub const LATER: ActorId = ActorId(0);

    /// Returns the number that an actor of another process has in the process where it runs. None
    /// of that process's own actors has it.
    pub fn hosted(self) -> ActorId {
        ActorId(self.0 | ActorStats::MANAGED)
    }

    /// Returns the number at its owner of an actor with such a number.
    pub(crate) fn at_owner(self) -> Option<ActorId> {
        (self.0 & ActorStats::MANAGED != 0).then_some(ActorId(self.0 & !ActorStats::MANAGED))
    }
}

/// The number of a port in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortId(pub u64);

impl PortId {
    /// Messages to this port change the holders of other ports.
    pub(crate) const HOLDERS: PortId = PortId(0);
    /// The directory of names and groups, which each process has.
    pub(crate) const DIRECTORY: PortId = PortId(u64::MAX);
    /// The topics with names, which are in the head.
    pub(crate) const TOPICS: PortId = PortId(u64::MAX - 1);
}

/// A process and its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    /// The process, which is unique in the session.
    pub id: ProcessId,
    /// The URL at which other processes can connect to it.
    pub address: Arc<str>,
}

/// A query to a process. Some are answered only when their event happens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The incarnation of an owned actor after this one. Answered with an `ActorLocation`, when it
    /// runs.
    Locate {
        /// The actor, which the queried process owns.
        actor: ActorId,
        /// The last incarnation that the caller knows, or 0.
        after: u64,
    },
    /// How often an actor has ended that is restarted. Answered with a number.
    EndCount {
        /// The actor, which the queried process owns.
        actor: ActorId,
    },
    /// The ends of an actor after the first ones. Answered with [`Ends`], when there is one.
    Ends {
        /// The actor, which the queried process owns.
        actor: ActorId,
        /// The number of ends that the caller knows.
        after: u64,
    },
    /// The end of the process with this number. Answered with an [`ExitReason`], when it has ended.
    IncarnationEnd {
        /// The actor, which the queried process owns.
        actor: ActorId,
        /// The number of the process. The first is 1.
        incarnation: u64,
    },
    /// The end of an actor that will not be restarted. Answered with an [`ExitReason`].
    ActorEnd {
        /// The actor, which the queried process owns.
        actor: ActorId,
    },
    /// For which actor the thread blocks that reads an actor's messages. Answered with an
    /// `Option<Wait>`.
    Wait {
        /// The actor, which runs in the queried process.
        actor: ActorId,
    },
    /// Answered when all earlier messages have arrived.
    Flush,
    /// Answered when nothing is handled any more that the caller has sent over earlier links.
    Resume,
}

/// The location of an owned actor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ActorLocation {
    At {
        process: ProcessRef,
        incarnation: u64,
    },
    /// The actor will not be restarted.
    Gone(ExitReason),
}

/// The ends of an actor that a watcher asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ends {
    /// How often the actor has ended in all.
    pub count: u64,
    /// The reasons of the ends that the caller did not know, in order.
    pub reasons: Vec<ExitReason>,
    /// Why the actor will not be restarted, if so.
    pub gone: Option<ExitReason>,
}

/// A message that is to be sent: a complete frame but for its call id, and the message's blobs.
#[derive(Clone, Debug)]
pub struct Payload {
    frame: Vec<u8>,
    /// The end of the frame, if payloads share it.
    body: Bytes,
    blobs: Blobs,
    /// Sends it with others of the same body.
    fan_out: Option<Arc<FanOut>>,
}

impl Payload {
    /// Returns a call of `method` at `actor`. The caller checks its length.
    pub fn call<M: Serialize>(
        actor: ActorId,
        method: EntryRef,
        terms: Terms,
        message: &M,
    ) -> Result<Payload> {
        let mut frame = call_head(actor, method, terms, 64);
        let blobs = codec::append_apart(&mut frame, message)?;
        Ok(Payload::whole(frame, blobs))
    }

    /// Returns a call of `method` at `actor` with a message that is encoded already. A long one is
    /// not copied, nor is one that `fan_out` sends to other actors, too.
    pub fn call_encoded(
        actor: ActorId,
        method: EntryRef,
        terms: Terms,
        message: &Received,
        fan_out: Option<&Arc<FanOut>>,
    ) -> Payload {
        let Received { bytes, blobs } = message.clone();
        if bytes.len() >= LONG || fan_out.is_some() {
            let (frame, fan_out) = (call_head(actor, method, terms, 0), fan_out.cloned());
            return Payload { frame, body: bytes, blobs, fan_out };
        }
        let mut frame = call_head(actor, method, terms, bytes.len());
        frame.extend_from_slice(&bytes);
        Payload::whole(frame, blobs)
    }

    /// Returns a query.
    pub(crate) fn query(query: &Query) -> Payload {
        let mut frame = vec![MESH, QUERY];
        frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
        codec::append(&mut frame, query).expect("queries can be serialized");
        frame.into()
    }

    /// Returns a message, such as one to a port that began as `port_head`.
    pub fn whole(frame: Vec<u8>, blobs: Blobs) -> Payload {
        Payload { frame, body: Bytes::new(), blobs, fan_out: None }
    }

    /// Chooses the actor that gets the call.
    pub fn set_actor(&mut self, actor: ActorId) {
        self.frame[ACTOR].copy_from_slice(&actor.0.to_le_bytes());
    }

    /// Changes how much time is left for a call that began with a limit.
    pub fn set_time_left(&mut self, left: Duration) {
        self.frame[TIME_LEFT].copy_from_slice(&nanos(left).to_le_bytes());
    }

    /// Returns the length in bytes, with the blobs.
    pub fn size(&self) -> usize {
        self.frame.len() + self.body.len() + self.blobs.total_len()
    }

    /// Sends the frame, with its call id.
    pub(super) fn send(mut self, call: CallId, link: &Arc<dyn Link>) {
        let fan_out = self.fan_out.take();
        let message = self.into_message(call);
        match fan_out {
            Some(fan_out) => fan_out.send(link, message),
            // If the link is closed, its reader notices that and fails the call.
            None => drop(link.send(message)),
        }
    }

    /// Returns the frame, with its call id.
    pub(crate) fn into_message(mut self, call: CallId) -> Message {
        self.frame[CALL_ID].copy_from_slice(&call.to_le_bytes());
        let message = match self.body.is_empty() {
            true => message(self.frame),
            false => Message::with_body(self.frame, self.body),
        };
        Message { blobs: self.blobs, ..message }
    }
}

/// The message has no blobs.
impl From<Vec<u8>> for Payload {
    fn from(frame: Vec<u8>) -> Payload {
        Payload::whole(frame, Blobs::default())
    }
}

/// Returns a call without its message, which the caller appends.
fn call_head(actor: ActorId, method: EntryRef, terms: Terms, message_len: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(CALL_HEAD + message_len);
    let has_terms = terms != Terms::default();
    frame.extend_from_slice(&[MESH, if has_terms { TERMS } else { CALL }]);
    for number in [NO_ANSWER, actor.0, method.offset, method.name] {
        frame.extend_from_slice(&number.to_le_bytes());
    }
    if has_terms {
        frame.push(terms.urgent.into());
        frame.extend_from_slice(&terms.time_left.map_or(0, nanos).to_le_bytes());
    }
    frame
}

/// Returns the time that is left as a call has it. 0 stands for no limit, so a time that is over is
/// 1 ns.
fn nanos(left: Duration) -> u64 {
    u64::try_from(left.as_nanos()).unwrap_or(u64::MAX).max(1)
}

fn message(frame: Vec<u8>) -> Message {
    if frame.len() < LONG {
        Message::new(frame)
    } else {
        Message::with_body(Vec::new(), frame.into())
    }
}

/// Returns a message to a port without its body, which the caller appends.
pub fn port_head(port: PortId) -> Vec<u8> {
    let mut frame = Vec::with_capacity(64);
    begin_port(&mut frame, port);
    frame
}

pub(crate) fn begin_port(frame: &mut Vec<u8>, port: PortId) {
    frame.extend_from_slice(&[MESH, PORT]);
    frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
    frame.extend_from_slice(&port.0.to_le_bytes());
}

/// Returns an answer without its value, which the caller appends.
pub fn answer_head() -> Vec<u8> {
    let mut frame = Vec::with_capacity(64);
    frame.extend_from_slice(&[MESH, ANSWER]);
    frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
    frame
}

/// An answer that began as [`answer_head`], with the blobs of its value.
pub struct AnswerFrame {
    /// The head, and after it the encoded value.
    pub frame: Vec<u8>,
    /// The parts of the value that travel beside its encoding.
    pub blobs: Blobs,
}

impl From<Vec<u8>> for AnswerFrame {
    fn from(frame: Vec<u8>) -> AnswerFrame {
        AnswerFrame { frame, blobs: Blobs::default() }
    }
}

impl AnswerFrame {
    /// Returns the message, with its call id.
    pub(crate) fn into_message(mut self, call: CallId) -> Message {
        self.frame[CALL_ID].copy_from_slice(&call.to_le_bytes());
        Message { blobs: self.blobs, ..message(self.frame) }
    }

    /// Returns the value.
    pub(crate) fn into_value(self) -> Received {
        Received { bytes: Bytes::from(self.frame).slice(CALL_ID.end..), blobs: self.blobs }
    }
}

/// Returns the message that a call has failed.
pub(super) fn failed(call: CallId, failure: &CallFailure) -> Message {
    let mut frame = vec![MESH, FAILED];
    frame.extend_from_slice(&call.to_le_bytes());
    codec::append(&mut frame, failure).expect("a failure can be serialized");
    message(frame)
}

/// Returns a heartbeat.
pub(crate) fn heartbeat() -> Message {
    let mut frame = vec![MESH, HEARTBEAT];
    frame.extend_from_slice(&NO_ANSWER.to_le_bytes());
    message(frame)
}

pub(crate) fn is_heartbeat(message: &[u8]) -> bool {
    message.starts_with(&[MESH, HEARTBEAT])
}

/// Returns whether a message is for an actor, and wants no answer.
pub(super) fn is_letter(message: &Message) -> bool {
    let frame: &[u8] = if message.head.is_empty() { &message.body } else { &message.head };
    let is_call = frame.starts_with(&[MESH, CALL]) || frame.starts_with(&[MESH, TERMS]);
    is_call && frame.get(CALL_ID) == Some(&NO_ANSWER.to_le_bytes()[..])
}

/// The reason why a call was not answered, as its callee sends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CallFailure {
    /// The message, its handler or its answer failed.
    Failed(Failure),
    /// The actor has ended.
    Stopped(ExitReason),
    /// The actor's mailbox is full.
    Full {
        /// The number of messages that the mailbox holds at most.
        capacity: usize,
    },
    /// The journal of the object can't be read or written.
    Journal {
        /// The folder of the journal, in the process that owns the object. Serde sends a `PathBuf`
        /// in UTF-8 alone.
        journal: OsString,
        /// The error, in words.
        cause: String,
    },
    /// The message is for an actor by key, whose key is another process's.
    Moved,
    /// The call's time limit had passed before the actor came to it.
    Late,
}

impl CallFailure {
    /// Returns the error of a journal that was sent.
    pub fn journal_error(journal: OsString, cause: String) -> Error {
        let cause: Box<dyn std::error::Error + Send + Sync> = cause.into();
        Error::Journal { journal: journal.into(), cause: cause.into() }
    }
}

/// Returns the exit reason of an unknown actor or object.
pub(crate) fn unknown() -> ExitReason {
    ExitReason::NotStarted("there is no such actor in its process, or it has ended".into())
}

/// A received frame.
pub(crate) enum Frame {
    Call { call: CallId, actor: ActorId, method: EntryRef, terms: Terms, message: Received },
    Query { call: CallId, query: Query },
    Port { call: CallId, port: PortId, body: Received },
    Answer { call: CallId, value: Received },
    Failed { call: CallId, failure: CallFailure },
    Heartbeat,
}

impl Frame {
    /// Reads a frame. Returns `None` if it is invalid. Its sender has the session's key, so that is
    /// a bug and not an attack.
    pub(crate) fn read(frame: impl Into<Received>) -> Option<Frame> {
        let Received { bytes: mut frame, blobs } = frame.into();
        if frame.len() < CALL_ID.end {
            return None;
        }
        let (_, kind, call) = (frame.get_u8(), frame.get_u8(), frame.get_u64_le());
        match kind {
            CALL | TERMS if frame.len() >= 24 => {
                let actor = ActorId(frame.get_u64_le());
                let method = EntryRef { offset: frame.get_u64_le(), name: frame.get_u64_le() };
                let mut terms = Terms::default();
                if kind == TERMS {
                    terms.urgent = frame.try_get_u8().ok()? != 0;
                    let nanos = frame.try_get_u64_le().ok()?;
                    terms.time_left = (nanos > 0).then(|| Duration::from_nanos(nanos));
                }
                let message = Received { bytes: frame, blobs };
                Some(Frame::Call { call, actor, method, terms, message })
            }
            PORT if frame.len() >= 8 => {
                let port = PortId(frame.get_u64_le());
                Some(Frame::Port { call, port, body: Received { bytes: frame, blobs } })
            }
            QUERY => codec::decode(&frame).ok().map(|query| Frame::Query { call, query }),
            ANSWER => Some(Frame::Answer { call, value: Received { bytes: frame, blobs } }),
            FAILED => codec::decode(&frame).ok().map(|failure| Frame::Failed { call, failure }),
            HEARTBEAT => Some(Frame::Heartbeat),
            _ => None,
        }
    }
}
