//! The error of a message that was not sent.

use std::{error, fmt};

use fiber_core::Error;

/// The error of [`RemoteAddr::try_send`](super::RemoteAddr::try_send): the message, and the reason
/// why it was not sent.
///
/// `?` turns it into the [`Error`] inside.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// use fiber::{AsyncManager, RemoteAddr};
///
/// fn add(counter: &RemoteAddr<Counter>, number: u64) {
///     if let Err(unsent) = counter.try_send(Add(number)) {
///         println!("{} was not added: {}", unsent.message.0, unsent.error);
///     }
/// }
///
/// let counter = AsyncManager::start(Counter, 0).wait()?;
/// add(&counter, 5);
/// assert_eq!(counter.send(Add(0)).wait()?, 5);
/// # Ok::<(), fiber::Error>(())
/// ```
#[non_exhaustive]
pub struct SendError<M> {
    /// The message.
    pub message: M,
    /// The reason.
    pub error: Error,
}

impl<M> SendError<M> {
    pub(crate) fn new(message: M, error: Error) -> SendError<M> {
        SendError { message, error }
    }
}

impl<M> From<SendError<M>> for Error {
    fn from(error: SendError<M>) -> Error {
        error.error
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message of type `{}` was not sent: {}", std::any::type_name::<M>(), self.error)
    }
}

impl<M> error::Error for SendError<M> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}
