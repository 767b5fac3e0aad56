//! Actors of other processes: addresses that travel, and the mesh of nodes that carries their
//! messages.
//!
//! - [`Mesh`] has a [`Channel`](channel::Channel) for each node that this one talks to, opened when
//!   it is first needed and used by both sides.
//! - [`Registry`] has an [`Inbox`] for each actor of this node that others can reach.
//! - A [`RemoteAddr`] names a node and an actor there. That of a managed actor names its owner,
//!   which knows where the actor's current incarnation is: a [`Route`](route::Route) asks it once,
//!   and again after a death.
//! - A [`Port`] is to fiber's own shared objects what an inbox is to an actor. A [`Handle`] keeps
//!   it alive, wherever the handle is: its owner knows its [holders](holders::Holders), and each
//!   process what it is [attached](attachments) to.
//! - A call is one frame: the actor, a [method entry](method) in place of a name, and the message.
//!   Whatever happens to it is told to its caller: an answer, a failure, or why nobody answers any
//!   more.

mod addr;
mod alarm;
mod attachments;
mod call;
mod channel;
mod deadlines;
mod export;
mod handle;
mod holders;
mod inbox;
mod inbox_pump;
mod mesh;
mod message;
mod method;
mod owned;
mod pending;
mod port;
mod port_ref;
mod recent;
mod registry;
mod route;
mod settle;
mod wire;

pub use addr::{RemoteAddr, RemoteRecipient};
pub(crate) use alarm::Alarm;
pub(crate) use attachments::wait_until_attached;
pub use call::Call;
pub(crate) use handle::Handle;
pub(crate) use inbox::Inbox;
pub(crate) use inbox_pump::Host;
pub(crate) use mesh::{Mesh, MeshPeer};
pub use message::RemoteMessage;
pub(crate) use owned::Owned;
pub(crate) use pending::Load;
pub(crate) use port::{PeerId, Port, Request, Requester, push, push_head};
pub(crate) use port_ref::{Asked, PortRef};
pub(crate) use registry::Registry;
pub(crate) use settle::settle;
pub(crate) use wire::{PortId, ProcessRef};
