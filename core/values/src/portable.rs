//! Values that travel between processes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A value that can travel between processes: an argument or a result of a task.
///
/// It is implemented for every type that implements serde's `Serialize` and `Deserialize` and
/// borrows nothing. A worker reads its arguments from a message, so there is nothing that they
/// could borrow from: take a `String` in place of a `&str`, and a `Vec<T>` in place of a `&[T]`.
/// This holds for results, too, `&'static str` among them.
///
/// A `Queue`, the ends of a `Pipe`, a `Broadcast`, a `RemoteAddr`, an [`Output`](crate::Output) and
/// the objects of `fiber::sync` travel as handles. A `Pool`, a `Process` and a manager stay in the
/// process that made them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't travel between processes",
    label = "serde can't carry this",
    note = "arguments and results implement serde's `Serialize` and `Deserialize` and borrow \
            nothing: derive both for a type of your own; use a `String` for a `&str`, and a \
            `Vec<T>` for a `&[T]`",
    note = "a `Pool`, a process, a manager or a held lock stays in its process: create it inside \
            the task, or pass a handle that travels (`Queue`, the ends of a `Pipe`, `Broadcast`, \
            `RemoteAddr`, an object of `fiber::sync`)"
)]
pub trait Portable: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + for<'de> OwnedLikeStringNotStr<'de>> Portable for T {}

/// A value that serde can read from a message that does not stay: a `String`, not a `&str`.
///
/// The compiler names this trait in its error when a task takes or returns a reference: whether a
/// type borrows is a question of lifetimes, for which it prints the trait's name and no note of
/// [`Portable`].
#[diagnostic::on_unimplemented(message = "`{Self}` can't travel between processes")]
pub trait OwnedLikeStringNotStr<'de>: Deserialize<'de> {}

#[diagnostic::do_not_recommend]
impl<'de, T: Deserialize<'de>> OwnedLikeStringNotStr<'de> for T {}
