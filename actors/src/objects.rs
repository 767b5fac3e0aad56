//! Shared objects of any type: queues, pipes, locks, values.
//!
//! An object is a [`Port`](crate::mesh::Port) of the process that made it, its *owner*. A
//! [`Handle`] keeps it alive from any process: the owner knows which processes hold the object, and
//! each process knows the objects that it is [attached](attachments) to.

mod attachments;
mod handle;
mod operations;
mod port_ref;
mod ticket;

pub(crate) use attachments::Attachments;
pub(crate) use handle::Handle;
pub(crate) use operations::{ObjectRef, SendOnDrop};
pub(crate) use port_ref::{PortConnection, PortRef, Response};
pub(crate) use ticket::{Ticket, made_at};
