//! Messages between the process of managed actors and their owner. Each is about one actor.

use fiber_core::ExitReason;
use fiber_transport::Message;
use fiber_values::codec::EncodedValue;
use serde::{Deserialize, Serialize};

use super::process::ActorMain;
use fiber_runtime::endpoint::MAIN;
use fiber_runtime::mesh::ActorId;

/// What has happened to an actor in its process.
#[derive(Serialize, Deserialize)]
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
    /// Returns the message with which the owner learns of this event of an actor.
    pub(super) fn message(&self, actor: ActorId) -> Message {
        message(&(actor, self))
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
        message(self)
    }
}

fn message(content: &impl Serialize) -> Message {
    let content = EncodedValue::new(content).expect("arguments and states are encoded already");
    Message::with_value(vec![MAIN], content)
}
