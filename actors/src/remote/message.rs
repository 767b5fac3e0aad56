//! What can be sent to an actor in another process.

use actix::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message that can go to an actor in another process: serde carries it, and its result.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be sent to an actor in another process",
    note = "such a message is an `actix::Message` that implements serde's `Serialize` and `DeserializeOwned`, and so does its \
            result (for a `Result`, both its value and its error); neither borrows: use a `String` for a `&str`"
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
