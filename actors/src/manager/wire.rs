//! Messages from the process of a managed actor to its owner.

use bytes::{Buf, Bytes};
use fiber_transport::Message;

use crate::endpoint::MAIN;

/// A message from the process of a managed actor. The discriminant is its first byte.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum ActorMessage {
    /// The encoded state of the actor follows.
    Snapshot = 0,
    /// The actor has ended for good. The encoded reason follows.
    Ended = 1,
}

impl ActorMessage {
    pub(super) fn encode(self, body: Vec<u8>) -> Message {
        Message::with_body(vec![MAIN, self as u8], body.into())
    }

    /// Reads the first byte of a message without its leading [`MAIN`] byte. The body remains.
    pub(super) fn decode(message: &mut Bytes) -> Option<ActorMessage> {
        match (!message.is_empty()).then(|| message.get_u8())? {
            0 => Some(ActorMessage::Snapshot),
            1 => Some(ActorMessage::Ended),
            _ => None,
        }
    }
}
