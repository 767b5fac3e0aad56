//! Messages between the process of managed actors and their owner. Each is about one actor.

use bytes::Buf;
use fiber_core::ExitReason;
use fiber_transport::Message;
use fiber_values::codec::{self, EncodedValue};
use serde::{Deserialize, Serialize};

use super::process::ActorMain;
use fiber_runtime::endpoint::MAIN;
use fiber_runtime::mesh::ActorId;

/// What has happened to an actor in its process.
pub(super) enum ActorEvent {
    /// Its encoded state.
    Snapshot(EncodedValue),
    /// The encoded state for which answers wait until it is [kept](Request::Kept).
    AwaitedSnapshot(EncodedValue),
    /// It has started. [`Ready`](fiber_runtime::runtime::ControlMessage::Ready) says so of the actor
    /// that the process was started for.
    Started,
    /// Its first start has failed.
    NotStarted(ExitReason),
    /// It has failed. It is restarted in its process, or too many restarts end it.
    Failed(ExitReason),
    /// It is restarted in its process.
    Restarted,
    /// It has ended for good.
    Ended(ExitReason),
}

impl ActorEvent {
    pub(super) fn encode(self, actor: ActorId) -> Message {
        match self {
            ActorEvent::Snapshot(state) => Message::with_value(head(0, actor), state),
            ActorEvent::AwaitedSnapshot(state) => Message::with_value(head(1, actor), state),
            ActorEvent::Started => Message::new(head(2, actor)),
            ActorEvent::NotStarted(reason) => with_reason(3, actor, &reason),
            ActorEvent::Failed(reason) => with_reason(4, actor, &reason),
            ActorEvent::Restarted => Message::new(head(5, actor)),
            ActorEvent::Ended(reason) => with_reason(6, actor, &reason),
        }
    }

    /// Reads a message without its leading [`MAIN`] byte.
    pub(super) fn decode(message: EncodedValue) -> Option<(ActorId, ActorEvent)> {
        let (kind, actor, message) = split(message)?;
        let reason = || codec::decode(&message.bytes).ok();
        let event = match kind {
            0 => ActorEvent::Snapshot(message),
            1 => ActorEvent::AwaitedSnapshot(message),
            2 => ActorEvent::Started,
            3 => ActorEvent::NotStarted(reason()?),
            4 => ActorEvent::Failed(reason()?),
            5 => ActorEvent::Restarted,
            6 => ActorEvent::Ended(reason()?),
            _ => return None,
        };
        Some((actor, event))
    }
}

/// What the owner asks of the process.
#[derive(Serialize, Deserialize)]
pub(super) enum Request {
    /// Starts an actor.
    Start(Box<ActorMain>),
    /// Stops an actor in order.
    Stop(ActorId),
    /// Ends an actor at once, for this reason.
    Kill(ActorId, ExitReason),
    /// The owner keeps the last awaited snapshot.
    Kept(ActorId),
    /// The owner knows that the actor has ended.
    Forget(ActorId),
}

impl Request {
    pub(super) fn message(&self) -> Message {
        let request = EncodedValue::new(self).expect("an actor's arguments are encoded already");
        Message::with_value(vec![MAIN], request)
    }
}

fn head(kind: u8, actor: ActorId) -> Vec<u8> {
    let mut head = vec![MAIN, kind];
    head.extend_from_slice(&actor.0.to_le_bytes());
    head
}

fn with_reason(kind: u8, actor: ActorId, reason: &ExitReason) -> Message {
    let mut head = head(kind, actor);
    codec::append(&mut head, reason).expect("an exit reason serializes");
    Message::new(head)
}

fn split(mut message: EncodedValue) -> Option<(u8, ActorId, EncodedValue)> {
    let kind = message.bytes.try_get_u8().ok()?;
    let actor = ActorId(message.bytes.try_get_u64_le().ok()?);
    Some((kind, actor, message))
}
