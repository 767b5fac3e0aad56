//! The messages between a topic and the processes that use it.
//!
//! ```text
//! to the topic    OPEN         an `Open` in MessagePack      answered if refused, or at the end
//!                 PUBLISH      retention u8  message…        answered when all have room
//!                 SUBSCRIBE    a `Subscribe` in MessagePack  answered when it is there
//!                 UNSUBSCRIBE  subscription u64
//!                 READ         (subscription u64  messages u32  bytes u64)…
//!                 CLOSE
//! to its client   TO_ALL       message…                      for all subscriptions of the client
//!                 TO_SOME      count u32  subscription u64…  message…
//!                 MISSED       subscription u64  count u64     the next message comes after a gap
//!                 TOO_SLOW     subscription u64                the last that comes for it
//! ```
//! A message to the topic begins with the number of its client: a process has one client for each
//! topic that it uses. The blobs of a message go with the frame.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use fiber_core::ProcessId;
use serde::{Deserialize, Serialize};

/// Opens a topic for a client.
pub const OPEN: u8 = 0;
/// Publishes a message.
pub const PUBLISH: u8 = 1;
/// Adds a subscription.
pub const SUBSCRIBE: u8 = 2;
/// Removes a subscription.
pub const UNSUBSCRIBE: u8 = 3;
/// Says what subscriptions have read.
pub const READ: u8 = 4;
/// Removes the client.
pub const CLOSE: u8 = 5;

/// Has a message for all subscriptions of a client.
pub const TO_ALL: u8 = 0;
/// Has a message for some subscriptions of a client.
pub const TO_SOME: u8 = 1;
/// Says how many messages a subscription has missed.
pub const MISSED: u8 = 2;
/// Says that a subscription has ended, because it was too slow.
pub const TOO_SLOW: u8 = 3;

/// The parts of a message that a topic keeps for those who subscribe later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Retention {
    /// Nothing: it keeps the message that it has.
    None = 0,
    /// The message.
    Message = 1,
    /// There is no message to send: the topic keeps none from now on.
    Clear = 2,
}

impl Retention {
    pub(super) fn from_byte(byte: u8) -> Retention {
        match byte {
            1 => Retention::Message,
            2 => Retention::Clear,
            _ => Retention::None,
        }
    }
}

/// The fate of a subscription that has no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenFull {
    /// Publishers wait until it has.
    Wait,
    /// It misses the oldest messages, and keeps so many of the newest.
    KeepNewest(u32),
    /// It ends.
    End,
}

/// The first message of a client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Open {
    /// The name of the topic, if it has one.
    pub name: Option<Arc<str>>,
    /// The type of its messages.
    pub message: Arc<str>,
    /// The client's process.
    pub process: ProcessId,
}

/// The request for a subscription.
#[derive(Debug, Serialize, Deserialize)]
pub struct Subscribe {
    /// Its number among those of its client.
    pub id: u64,
    /// Its fate without room.
    pub when_full: WhenFull,
    /// How many messages it may be sent that it has not read.
    pub window: u32,
    /// How many bytes of messages it may be sent before it has read some.
    pub window_bytes: u64,
}

/// The messages that a subscription has read since it last said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The subscription.
    pub subscription: u64,
    /// The number of messages.
    pub messages: u32,
    /// Their size.
    pub bytes: u64,
}

/// Bytes of a [`Read`].
const READ_LEN: usize = 20;

impl Read {
    /// Appends it to a frame.
    pub fn append(&self, frame: &mut Vec<u8>) {
        frame.extend_from_slice(&self.subscription.to_le_bytes());
        frame.extend_from_slice(&self.messages.to_le_bytes());
        frame.extend_from_slice(&self.bytes.to_le_bytes());
    }

    /// Takes the next one of a frame.
    pub(super) fn take(body: &mut Bytes) -> Option<Read> {
        (body.len() >= READ_LEN).then(|| Read {
            subscription: body.get_u64_le(),
            messages: body.get_u32_le(),
            bytes: body.get_u64_le(),
        })
    }
}
