//! What a queue's owner and its clients say to each other.
//!
//! ```text
//! to the owner    PUT     count u32  block…                  answered by an outcome when it is in the queue
//!                 WANT    demand u32  extra u32  used u64    so many are waited for, in all; of what is there, so
//!                                                            many more may come
//!                 ASK     an `Ask` in MessagePack
//! to the client   GIVE    epoch u32  count u32  block…       what it waits for
//!                 LEND    epoch u32  count u32  block…       to be used, or given back
//!                 RECALL                                     settle: give back what is not used
//!                 ENDED   how u8                             nothing more will come
//! ```
//! An epoch is the number of times that the client has settled: what was sent before the owner knew
//! of the last one has gone back, and the client ignores it.

use bytes::{Buf, Bytes};
use fiber_core::CloseReason;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::blocks::Block;
use crate::mesh::PortId;
use crate::objects::Ticket;

pub(super) const PUT: u8 = 0;
pub(super) const WANT: u8 = 1;
pub(super) const ASK: u8 = 2;

pub(super) const GIVE: u8 = 0;
pub(super) const LEND: u8 = 1;
pub(super) const RECALL: u8 = 2;
pub(super) const ENDED: u8 = 3;

/// What became of a put.
pub(super) const ADMITTED: u8 = 0;

/// Which way elements go through one end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Writer,
    Reader,
}

/// Why nothing more comes through a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(super) enum Closing {
    Closed = 1,
    OtherEnd = 2,
}

impl Closing {
    pub(super) fn from_byte(byte: u8) -> Closing {
        if byte == Closing::OtherEnd as u8 { Closing::OtherEnd } else { Closing::Closed }
    }

    pub(super) fn reason(self) -> CloseReason {
        match self {
            Closing::Closed => CloseReason::Closed,
            Closing::OtherEnd => CloseReason::OtherEndGone,
        }
    }
}

/// What clients ask, other than for speed.
#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    /// This client is there; answered when the queue is gone.
    Attach {
        port: PortId,
    },
    /// Answered: so many of all that was sent were used, the rest comes back. So many are waited
    /// for.
    Settle {
        used: u64,
        demand: usize,
    },
    /// One element that was used, and is not wanted any more.
    GiveBack(ByteBuf),
    /// Answered by a delivery and its element, or how the queue has ended.
    Take {
        ticket: Ticket,
    },
    Untake {
        ticket: Ticket,
    },
    /// Answered.
    Acknowledge {
        delivery: u64,
    },
    Return {
        delivery: u64,
    },
    /// Answered by the element, if there is one.
    TryGet,
    /// Answered by whether there was room.
    TryPut(ByteBuf),
    /// Answered as a PUT.
    PutOne {
        ticket: Ticket,
        element: ByteBuf,
    },
    /// Answered by whether it was not in the queue yet, and will not be.
    Unput {
        ticket: Ticket,
    },
    Len,
    TaskDone(u64),
    /// Answered when all is done.
    Join {
        ticket: Ticket,
    },
    Unjoin {
        ticket: Ticket,
    },
    /// Answered.
    Close,
    /// A pipe's end has arrived in this process.
    Claim {
        role: Role,
        token: u64,
    },
    /// The last one of them here is gone.
    Unclaim {
        role: Role,
    },
    /// A pipe's end has been sent away.
    Travel {
        role: Role,
        token: u64,
    },
    /// A pipe's end that was sent away has arrived, or will not.
    TravelNoMore {
        role: Role,
        token: u64,
    },
}

/// A block as it came, after its count.
pub(super) fn read_block(mut body: Bytes) -> Option<Block> {
    if body.len() < 4 {
        return None;
    }
    let count = body.get_u32_le() as usize;
    Block::read(body, count)
}
