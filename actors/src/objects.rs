//! Shared objects of any kind: queues, pipes, locks, values.
//!
//! An object is a [`Port`](crate::mesh::Port) of the process that made it. A [`Handle`] keeps it
//! alive from any process: the owner knows the object's [holders](crate::mesh), and each process
//! the objects that it is [attached](attachments) to.

mod attachments;
mod handle;
mod held_back;
mod port_ref;
mod ticket;
mod waiting;

pub(crate) use attachments::{are_attached, wait_until_attached, when_attached};
pub(crate) use handle::Handle;
pub(crate) use held_back::{hold_back, release, send_held_back, set_send_all};
pub(crate) use port_ref::{Asked, PortRef};
pub(crate) use ticket::{Ticket, made_at};
pub use waiting::Waiting;
