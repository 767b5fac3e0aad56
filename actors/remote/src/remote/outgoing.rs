//! Messages on their way to one actor, or to several.

use std::sync::Arc;

use fiber_runtime::mesh::FanOut;
use fiber_transport::Received;
use fiber_values::{codec, transfer};

use super::message::RemoteMessage;

/// A message for one actor.
pub(crate) enum Outgoing<'a, M> {
    Value(&'a M),
    /// Others get it, too.
    Shared(&'a Received, &'a Arc<FanOut>),
}

/// A message for several actors. Dropping it sends what waits for the last of them.
pub(crate) enum ForAll<M> {
    Shared(Received, Arc<FanOut>),
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
                ForAll::Shared(Received { bytes: bytes.into(), blobs }, Arc::default())
            }
            _ => ForAll::Value(message),
        }
    }

    /// Returns the message for one of the actors.
    pub(crate) fn for_one(&self) -> Outgoing<'_, M> {
        match self {
            ForAll::Shared(message, fan_out) => Outgoing::Shared(message, fan_out),
            ForAll::Value(message) => Outgoing::Value(message),
        }
    }
}

impl<M> Drop for ForAll<M> {
    fn drop(&mut self) {
        if let ForAll::Shared(_, fan_out) = self {
            fan_out.finish();
        }
    }
}
