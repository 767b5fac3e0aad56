//! Messages from the process of a managed actor to its owner.

use bytes::Buf;
use fiber_core::ExitReason;
use fiber_transport::Message;
use fiber_values::codec::{self, EncodedValue};

use fiber_runtime::endpoint::MAIN;

/// A message from the process of a managed actor. Its first byte says which one.
pub(super) enum ActorMessage {
    /// The encoded state of the actor.
    Snapshot(EncodedValue),
    /// The encoded state for which answers wait. The owner sends an empty message when it keeps it.
    AwaitedSnapshot(EncodedValue),
    /// The actor has failed. It is restarted in its process, or too many restarts end that.
    Failed(ExitReason),
    /// The actor is restarted in its process.
    Restarted,
    /// The actor has ended for good.
    Ended(ExitReason),
}

impl ActorMessage {
    pub(super) fn encode(self) -> Message {
        match self {
            ActorMessage::Snapshot(state) => Message::with_value(vec![MAIN, 0], state),
            ActorMessage::AwaitedSnapshot(state) => Message::with_value(vec![MAIN, 4], state),
            ActorMessage::Ended(reason) => with_reason(1, &reason),
            ActorMessage::Failed(reason) => with_reason(2, &reason),
            ActorMessage::Restarted => Message::new(vec![MAIN, 3]),
        }
    }

    /// Reads a message without its leading [`MAIN`] byte.
    pub(super) fn decode(mut message: EncodedValue) -> Option<ActorMessage> {
        match message.bytes.try_get_u8().ok()? {
            0 => Some(ActorMessage::Snapshot(message)),
            1 => codec::decode(&message.bytes).ok().map(ActorMessage::Ended),
            2 => codec::decode(&message.bytes).ok().map(ActorMessage::Failed),
            3 => Some(ActorMessage::Restarted),
            4 => Some(ActorMessage::AwaitedSnapshot(message)),
            _ => None,
        }
    }
}

fn with_reason(kind: u8, reason: &ExitReason) -> Message {
    let mut head = vec![MAIN, kind];
    codec::append(&mut head, reason).expect("an exit reason serializes");
    Message::new(head)
}
