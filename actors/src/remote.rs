//! Actors of other processes: addresses that travel, and the handling of messages that arrive.
//!
//! - A [`RemoteAddr`] names a process and an actor there. That of a managed actor names the actor's
//!   owner, which knows where the current incarnation is.
//! - A call is one frame: the actor, a [method entry](method) in place of a name, and the message.

mod addr;
mod call;
mod export;
mod inbox_pump;
mod message;
mod method;

pub use addr::{RemoteAddr, RemoteRecipient};
pub use call::Call;
#[cfg(test)]
pub(crate) use inbox_pump::Dispatch;
pub(crate) use inbox_pump::Host;
pub use message::RemoteMessage;
