//! Shared objects of any type: queues, pipes, locks, values.
//!
//! An object is a [`Port`](crate::mesh::Port) of the process that made it, its *owner*. A
//! [`Handle`] keeps it alive from any process: the owner knows which processes hold the object, and
//! each process knows the objects that it is attached to.

mod attachments;
mod handle;
mod operations;
mod output;
mod port_ref;
mod ticket;

pub use attachments::Attachments;
pub use handle::Handle;
pub use operations::{ObjectRef, SendOnDrop};
pub use output::let_outputs_travel;
pub use port_ref::{PortConnection, PortRef, Response, with_remedy};
pub use ticket::{Ticket, made_at};
