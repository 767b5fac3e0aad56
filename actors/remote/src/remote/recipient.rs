//! Addresses for one type of message.

use std::fmt;
use std::marker::PhantomData;

use actix::Recipient;
use fiber_values::entry::EntryRef;
use serde::{Deserialize, Serialize};

use super::message::RemoteMessage;
use super::outgoing::Outgoing;
use super::send_error::SendError;
use super::untyped::UntypedAddr;
use fiber_runtime::reply::Reply;
use fiber_supervisor::supervisor::Down;

/// The address of an actor of any type that handles messages of type `M`. It is to
/// [`RemoteAddr`](super::RemoteAddr) what [`actix::Recipient`] is to [`actix::Addr`].
///
/// It travels as a `RemoteAddr` does, and its messages cost the same.
/// [`RemoteAddr::recipient`](super::RemoteAddr::recipient) makes one.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// use fiber::{AsyncManager, Process, remote::RemoteRecipient};
///
/// let counter = AsyncManager::start(Counter, 0).wait()?;
/// let recipient: RemoteRecipient<Add> = counter.recipient();
/// let add_one = |recipient: RemoteRecipient<Add>| recipient.send(Add(1)).wait();
/// let process = Process::builder().try_spawn(add_one, recipient.clone());
/// assert_eq!(process.wait()?, 1);
/// recipient.do_send(Add(1));
/// recipient.try_send(Add(1))?;
/// assert_eq!(recipient.send(Add(1)).wait()?, 4);
/// assert!(recipient.connected());
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct RemoteRecipient<M> {
    pub(crate) addr: UntypedAddr,
    pub(crate) method: EntryRef,
    #[serde(skip)]
    message: PhantomData<fn(M)>,
}

impl<M: RemoteMessage> RemoteRecipient<M> {
    pub(crate) fn new(addr: UntypedAddr, method: EntryRef) -> RemoteRecipient<M> {
        RemoteRecipient { addr, method, message: PhantomData }
    }

    /// Sends a message, as [`RemoteAddr::send`](super::RemoteAddr::send). [`RemoteRecipient`] has
    /// an example.
    pub fn send(&self, message: M) -> Reply<M::Result> {
        self.addr.call(self.method, Outgoing::Value(&message), None)
    }

    /// Sends a message without an answer, as [`RemoteAddr::do_send`](super::RemoteAddr::do_send).
    /// [`RemoteRecipient`] has an example.
    pub fn do_send(&self, message: M) {
        self.addr.do_send(self.method, Outgoing::Value(&message));
    }

    /// Sends a message without an answer, as [`RemoteAddr::try_send`](super::RemoteAddr::try_send).
    /// [`RemoteRecipient`] has an example.
    ///
    /// # Errors
    /// As [`RemoteAddr::try_send`](super::RemoteAddr::try_send), with the message.
    pub fn try_send(&self, message: M) -> Result<(), SendError<M>> {
        let sent = self.addr.try_send(self.method, Outgoing::Value(&message));
        sent.map_err(|error| SendError::new(message, error))
    }

    /// Sends `recipient` one [`Down`] for each end of the actor, as
    /// [`RemoteAddr::watch`](super::RemoteAddr::watch), which has an example.
    pub fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        self.addr.watch(recipient)
    }

    /// Returns whether the actor may be there, as
    /// [`RemoteAddr::connected`](super::RemoteAddr::connected). [`RemoteRecipient`] has an example.
    pub fn connected(&self) -> bool {
        self.addr.connected()
    }
}

clone_handle!(RemoteRecipient<M> { addr, method, message });

/// Two recipients are equal if they are of the same actor.
impl<M> PartialEq for RemoteRecipient<M> {
    fn eq(&self, other: &RemoteRecipient<M>) -> bool {
        self.addr.target == other.addr.target && self.method == other.method
    }
}

impl<M> Eq for RemoteRecipient<M> {}

impl<M> fmt::Debug for RemoteRecipient<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteRecipient({})", self.addr.target.name)
    }
}
