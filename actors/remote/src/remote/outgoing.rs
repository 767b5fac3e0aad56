//! Messages on their way to one actor, or to several.

use fiber_transport::Received;
use fiber_values::{codec, transfer};

use super::message::RemoteMessage;

/// A message for one actor.
pub(crate) enum Outgoing<'a, M> {
    Value(&'a M),
    Encoded(&'a Received),
}

/// A message for several actors.
pub(crate) enum ForAll<M> {
    Encoded(Received),
    /// Each actor gets an encoding of its own.
    Value(M),
}

impl<M: RemoteMessage> ForAll<M> {
    /// Encodes a message once. One with handles that are counted is encoded for each actor: a count
    /// ends with the first decoding. So is one that can't be encoded, as each call says why.
    pub(crate) fn new(message: M) -> ForAll<M> {
        let mut bytes = Vec::new();
        let (blobs, handles) = transfer::repeatable(|| codec::append_apart(&mut bytes, &message));
        match blobs {
            Ok(blobs) if handles.is_empty() => {
                ForAll::Encoded(Received { bytes: bytes.into(), blobs })
            }
            _ => ForAll::Value(message),
        }
    }

    /// Returns the message for one of the actors.
    pub(crate) fn for_one(&self) -> Outgoing<'_, M> {
        match self {
            ForAll::Encoded(message) => Outgoing::Encoded(message),
            ForAll::Value(message) => Outgoing::Value(message),
        }
    }
}
