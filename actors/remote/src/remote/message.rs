//! Messages to actors in other processes.

use actix::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message that can be sent to an actor in another process: an [`actix::Message`] that serde can
/// encode and decode, as well as its result. It is implemented for all such types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be sent to an actor in another process",
    note = "a remote message is an `actix::Message` that implements serde's `Serialize` and \
            `DeserializeOwned`, and so does its result (for a `Result`, both its value and its \
            error); neither borrows: use a `String` for a `&str`"
)]
pub trait RemoteMessage:
    Message<Result: Serialize + DeserializeOwned + Send + 'static>
    + Serialize
    + DeserializeOwned
    + Send
    + 'static
{
}

#[diagnostic::do_not_recommend]
impl<M> RemoteMessage for M
where
    M: Message + Serialize + DeserializeOwned + Send + 'static,
    M::Result: Serialize + DeserializeOwned + Send + 'static,
{
}
