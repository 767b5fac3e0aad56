//! References to ports: how any process sends messages to a shared object.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, ExitReason, ProcessId, Result, forks};
use fiber_transport::Received;
use fiber_values::codec;
use tokio::sync::oneshot;

use super::ticket::Ticket;
use crate::mesh::{
    self, Answer, Change, Channel, Payload, Pending, PortId, ProcessRef, Unanswered, Waiter,
};
use crate::runtime::Runtime;

/// The process of a port, its number there, and its name in errors.
#[derive(Clone, Debug)]
pub struct PortRef {
    /// This process's runtime, if it was of the port's session when the reference was made.
    pub(super) runtime: Option<&'static Runtime>,
    /// The session of the port. Processes of other sessions can't use the reference.
    pub(crate) session: u64,
    /// The name of the object, with which errors begin or end.
    pub name: Arc<str>,
    /// The process that has the port.
    pub(crate) owner: ProcessRef,
    /// The number of the port in its process.
    pub id: PortId,
}

/// Two references are equal if they lead to the same port.
impl PartialEq for PortRef {
    fn eq(&self, other: &PortRef) -> bool {
        (self.id, self.session, &self.owner) == (other.id, other.session, &other.owner)
    }
}

impl Eq for PortRef {}

impl PortRef {
    /// Returns a reference to a port of this process.
    ///
    /// # Errors
    /// As [`Runtime::address_now`].
    pub fn local(runtime: &'static Runtime, name: &str, id: PortId) -> Result<PortRef> {
        let owner = ProcessRef { id: runtime.id(), address: runtime.address_now()?.into() };
        let (session, name) = (runtime.session(), name.into());
        Ok(PortRef { runtime: Some(runtime), session, name, owner, id })
    }

    /// Returns a reference to the topics with names, which errors call `name`.
    ///
    /// # Errors
    /// As [`Runtime::address_now`].
    pub fn topics(runtime: &'static Runtime, name: &str) -> Result<PortRef> {
        let Some(head) = runtime.directory().head() else {
            return PortRef::local(runtime, name, PortId::TOPICS);
        };
        let (session, owner) = (runtime.session(), head.clone());
        let id = PortId::TOPICS;
        Ok(PortRef { runtime: Some(runtime), session, name: name.into(), owner, id })
    }

    /// Returns a reference that has come to this process.
    pub(crate) fn decoded(session: u64, name: Arc<str>, owner: ProcessRef, id: PortId) -> PortRef {
        let runtime = Runtime::current().filter(|runtime| runtime.session() == session);
        PortRef { runtime, session, name, owner, id }
    }

    /// Returns the process that owns the port.
    pub fn owner(&self) -> ProcessId {
        self.owner.id
    }

    /// Returns this process's runtime, started if need be.
    ///
    /// # Errors
    /// As [`Runtime::of_session`].
    pub fn runtime(&self) -> Result<&'static Runtime> {
        forks::check()?;
        self.runtime.map_or_else(|| Runtime::of_session(self.session, &self.name), Ok)
    }

    /// Returns a number for a request that may be withdrawn or released later.
    pub(crate) fn ticket(&self) -> Ticket {
        // Without a runtime, the request itself fails.
        Ticket(self.runtime().map_or(0, |runtime| runtime.mesh().next_ticket()))
    }

    /// Sends a change of the port's holders, unless the link to the owner is lost: then the owner
    /// has removed this process from the holders itself.
    pub(crate) fn change_if_connected(&self, change: Change) {
        if let Ok(runtime) = self.runtime()
            && let Some(channel) = runtime.mesh().current_channel(self.owner.id)
        {
            send(runtime, &channel, self.change(change), None);
        }
    }

    /// Returns a change of the port's holders, as a message to its owner.
    pub(super) fn change(&self, change: Change) -> Vec<u8> {
        let mut payload = mesh::port_head(PortId::HOLDERS);
        let change = (self.id, change);
        codec::append(&mut payload, &change).expect("changes can be serialized");
        payload
    }

    /// Bytes before the body of a message.
    pub const HEAD: usize = mesh::PORT_HEAD;

    /// Returns a message to the port without its body, which the caller appends.
    pub fn payload(&self) -> Vec<u8> {
        mesh::port_head(self.id)
    }

    /// As [`payload`](PortRef::payload), in memory that the caller reuses.
    pub fn begin(&self, payload: &mut Vec<u8>) {
        payload.clear();
        mesh::begin_port(payload, self.id);
    }

    /// Sends a message that began as [`payload`](PortRef::payload). `then` gets the answer, on the
    /// thread that receives it.
    pub(crate) fn request_then(
        &self,
        payload: impl Into<Payload>,
        then: impl FnOnce(Result<Received>) + Send + 'static,
    ) {
        match self.connection() {
            Ok(connection) => connection.request_then(payload, then),
            Err(error) => then(Err(error)),
        }
    }

    /// Sends a message that began as [`payload`](PortRef::payload). The future is the answer.
    pub fn request(&self, payload: impl Into<Payload>) -> Response {
        match self.connection() {
            Ok(connection) => connection.request(payload),
            Err(error) => Response::failed(&self.name, error),
        }
    }

    /// Sends a message that began as [`payload`](PortRef::payload) and has no answer.
    pub fn send(&self, payload: impl Into<Payload>) {
        if let Ok(connection) = self.connection() {
            connection.send(payload);
        }
    }

    /// Returns the present connection to the owner, which is made if there is none.
    ///
    /// # Errors
    /// As [`PortRef::runtime`].
    pub fn connection(&self) -> Result<PortConnection> {
        let runtime = self.runtime()?;
        let channel = runtime.mesh().channel(&self.owner);
        Ok(PortConnection { runtime, channel, name: Arc::clone(&self.name) })
    }
}

/// A connection to the owner of a port. What is sent over one that was lost fails, also if there is
/// another one by then.
pub struct PortConnection {
    runtime: &'static Runtime,
    channel: Arc<Channel>,
    name: Arc<str>,
}

impl PortConnection {
    /// Sends a request. `then` gets the answer, on the thread that receives it.
    pub fn request_then(
        &self,
        payload: impl Into<Payload>,
        then: impl FnOnce(Result<Received>) + Send + 'static,
    ) {
        let name = Arc::clone(&self.name);
        let waiter = Waiter::Callback(Box::new(move |answer| then(conclude(&name, answer))));
        send(self.runtime, &self.channel, payload, Some(waiter));
    }

    /// As [`PortRef::request`].
    pub fn request(&self, payload: impl Into<Payload>) -> Response {
        let (sender, answer) = oneshot::channel();
        send(self.runtime, &self.channel, payload, Some(Waiter::Sender(sender)));
        Response { name: Arc::clone(&self.name), answer }
    }

    /// As [`PortRef::send`].
    pub fn send(&self, payload: impl Into<Payload>) {
        send(self.runtime, &self.channel, payload, None);
    }
}

fn send(
    runtime: &'static Runtime,
    channel: &Arc<Channel>,
    payload: impl Into<Payload>,
    waiter: Option<Waiter>,
) {
    let pending = waiter.map(Pending::new);
    // The link of a fork is the original's. The futures of answers know of forks.
    if !forks::is_forked()
        && let Err(refused) = channel.send(payload.into(), pending)
        && refused.pending.is_some()
    {
        // The sender may hold a lock that the waiter's callback needs, so this is not done at once.
        runtime.spawn(move || async move { refused.complete() });
    }
}

/// The future of a port's answer.
#[derive(Debug)]
pub struct Response {
    name: Arc<str>,
    answer: oneshot::Receiver<Answer>,
}

impl Response {
    /// Returns the response to a message that could not be sent.
    pub fn failed(name: &Arc<str>, error: Error) -> Response {
        let (sender, answer) = oneshot::channel();
        let _ = sender.send(Err(Unanswered::Refused(error)));
        Response { name: Arc::clone(name), answer }
    }
}

impl Future for Response {
    type Output = Result<Received>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Received>> {
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        let answer = answer.unwrap_or_else(Unanswered::gone);
        Poll::Ready(conclude(&self.name, answer))
    }
}

/// Adds a remedy to the error of a lost link, after which the object may live on.
pub fn with_remedy(error: Error, remedy: &str) -> Error {
    match error {
        Error::OwnerEnded { what, reason: ExitReason::LinkLost(problem) } => {
            let reason = ExitReason::LinkLost(format!("{problem}; {remedy}"));
            Error::OwnerEnded { what, reason }
        }
        other => other,
    }
}

fn conclude(name: &str, answer: Answer) -> Result<Received> {
    let stopped = |reason| Error::OwnerEnded { what: name.to_string(), reason };
    answer.map_err(|unanswered| {
        unanswered.into_error(name, "a request", &stopped, &|| name.to_string())
    })
}
