//! Shared objects of any type: queues, pipes, locks, values.
//!
//! An object is a [`Port`](crate::mesh::Port) of the process that made it, its *owner*. A
//! [`Handle`] keeps it alive from any process: the owner knows which processes hold the object, and
//! each process knows the objects that it is [attached](attachments) to.

mod attachments;
mod handle;
mod held_back;
mod operations;
mod port_ref;
mod ticket;

pub(crate) use attachments::{are_attached, wait_until_attached, when_attached};
pub(crate) use handle::Handle;
pub(crate) use held_back::{hold_back, release, send_held_back, set_send_all};
pub(crate) use operations::{ObjectRef, SendOnDrop};
pub(crate) use port_ref::{PortConnection, PortRef, Response};
pub(crate) use ticket::{Ticket, made_at};
