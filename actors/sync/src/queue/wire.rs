//! The messages between a queue's owner and its clients.
//!
//! ```text
//! to the owner    PUT        count u32  block…             answered when the elements are in
//!                 WANT       demand u32  prefetch u32  used u64   prefetch: beyond the demand
//!                 OPERATION  an `Operation` in MessagePack, with the blobs of its element
//! to the client   DELIVER    epoch u32  count u32  block…     elements that it demanded
//!                 PREFETCH   epoch u32  count u32  block…     more elements, to use or return
//!                 RECALL                                      return what is not used
//!                 ENDED      reason u8                        no more elements will come
//! ```
//! A block of one element may have blobs, which go with the frame.
//!
//! An epoch is the number of times that the client has returned elements. Elements that the owner
//! sent before it received the last return are back in the queue, and the client ignores them.

use bytes::Buf;
use fiber_core::CloseReason;
use fiber_transport::Received;
use fiber_values::codec::EncodedValue;
use serde::{Deserialize, Serialize};

use super::blocks::Block;
use fiber_runtime::mesh::PortId;
use fiber_runtime::objects::Ticket;

pub(super) const PUT: u8 = 0;
pub(super) const WANT: u8 = 1;
pub(super) const OPERATION: u8 = 2;

pub(super) const DELIVER: u8 = 0;
pub(super) const PREFETCH: u8 = 1;
pub(super) const RECALL: u8 = 2;
pub(super) const ENDED: u8 = 3;

/// The outcome of a successful put. Any other outcome is a [`Closing`].
pub(super) const ADMITTED: u8 = 0;

/// The direction of one end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PipeRole {
    Writer,
    Reader,
}

/// How a queue was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(super) enum Closing {
    Closed = 1,
    OtherEndGone = 2,
}

impl Closing {
    pub(super) fn from_byte(byte: u8) -> Closing {
        if byte == Closing::OtherEndGone as u8 { Closing::OtherEndGone } else { Closing::Closed }
    }

    pub(super) fn reason(self) -> CloseReason {
        match self {
            Closing::Closed => CloseReason::Closed,
            Closing::OtherEndGone => CloseReason::OtherEndGone,
        }
    }
}

/// Requests of clients, apart from the frequent ones.
#[derive(Serialize, Deserialize)]
pub(crate) enum Operation {
    /// Registers a client. Answered when the queue has ended.
    Attach(PortId),
    /// Returns all elements but the first `used` that the client was ever sent. Answered.
    ReturnUnused {
        used: u64,
        demand: usize,
    },
    /// As `ReturnUnused`, and returns one element that was counted as used, too: the one before
    /// those that it returns. Not answered.
    ReturnElement {
        element: EncodedValue,
        used: u64,
        demand: usize,
    },
    /// Answered with the number of a delivery and its element, or the close reason.
    GetDelivery(Ticket),
    WithdrawGet(Ticket),
    /// Names a delivery. Answered.
    Acknowledge(u64),
    /// Names a delivery.
    Requeue(u64),
    /// Answered with the element, if any.
    TryGet,
    /// Answered with whether there was room.
    TryPut(EncodedValue),
    /// Answered as a PUT.
    Put(Ticket, EncodedValue),
    /// Answered with whether the element was not in the queue yet.
    WithdrawPut(Ticket),
    Len,
    TaskDone(u64),
    /// Answered when no work is left.
    Join(Ticket),
    WithdrawJoin(Ticket),
    /// Answered.
    Close,
    /// A pipe's end has arrived in the client's process, with the token of its way.
    EndArrived(PipeRole, u64),
    /// The client's process has dropped an end.
    EndDropped(PipeRole),
    /// The client's process has sent an end to another process.
    EndSent(PipeRole, u64),
    /// An end that was sent will not arrive, unless it has arrived.
    EndLost(PipeRole, u64),
}

impl Operation {
    /// Returns whether a durable queue can't carry out the operation without its journal.
    pub(super) fn needs_journal(&self) -> bool {
        matches!(
            self,
            Operation::Put(..)
                | Operation::TryPut(_)
                | Operation::GetDelivery(_)
                | Operation::Acknowledge(_)
                | Operation::Join(_)
        )
    }
}

/// Reads a count and the block behind it.
pub(super) fn read_block(mut body: Received) -> Option<Block> {
    if body.len() < 4 {
        return None;
    }
    let count = body.bytes.get_u32_le() as usize;
    Block::read(body, count)
}
