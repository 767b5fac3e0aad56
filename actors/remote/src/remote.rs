//! Actors of other processes: their addresses, and the handling of messages that arrive.
//!
//! - A [`RemoteAddr`] names a process and an actor there. That of a managed actor names the actor's
//!   owner, which knows where the current incarnation is.
//! - A call is one frame: the actor, a method entry in place of a name, and the message.
//! - An `InboxPump` passes the messages of an inbox to the actor.

mod addr;
mod export;
mod held_answers;
mod inbox_pump;
mod message;
mod method;
mod outgoing;
mod recipient;
mod send_error;
mod terms;
mod this;
mod untyped;
mod watch;

pub use addr::RemoteAddr;
pub use export::LocalActor;
pub(crate) use held_answers::{HeldAnswers, Holding};
pub(crate) use inbox_pump::{Host, OpenCall};
pub use message::RemoteMessage;
pub(crate) use method::{CallOutcome, Carrier, Encoded, Method, MethodCall, encode, handle};
pub(crate) use outgoing::{ForAll, Outgoing};
pub use recipient::RemoteRecipient;
pub use send_error::SendError;
pub use terms::deadline;
pub use this::this;
pub(crate) use untyped::{Target, UntypedAddr, unheard};
