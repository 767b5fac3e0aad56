//! Where a port is: what speaks to fiber's shared objects, from any process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fiber_core::{Error, ExitReason, ProcessId, Result};
use tokio::sync::oneshot;

use crate::mesh::{
    self, Answer, CallFailure, Change, Channel, Payload, Pending, PortId, ProcessRef, Unanswered,
    Waiter,
};
use crate::runtime::Runtime;

/// Where a port is, and what errors call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortRef {
    pub(crate) session: u64,
    pub(crate) name: Arc<str>,
    pub(crate) runtime: ProcessRef,
    pub(crate) id: PortId,
}

impl PortRef {
    /// A port of this node.
    pub(crate) fn here(runtime: &'static Runtime, name: &str, id: PortId) -> Result<PortRef> {
        let home = ProcessRef { id: runtime.id(), address: runtime.address_now()?.into() };
        Ok(PortRef { session: runtime.session(), name: name.into(), runtime: home, id })
    }

    /// The node where it is.
    pub(crate) fn home(&self) -> ProcessId {
        self.runtime.id
    }

    /// The node of this process, if it has one and is of the port's session.
    pub(crate) fn current_node(&self) -> Option<&'static Runtime> {
        Runtime::current().filter(|runtime| runtime.session() == self.session)
    }

    /// Asks the owner for a change of who holds the port; `then` runs when it knows, or is gone.
    pub(crate) fn change_then(&self, change: Change, then: impl FnOnce() + Send + 'static) {
        self.ask_then(self.change_parcel(change), move |_| then());
    }

    /// Tells the owner of a change of who holds the port.
    pub(crate) fn change(&self, change: Change) {
        self.tell(self.change_parcel(change));
    }

    /// As [`change`](PortRef::change), unless the owner is not connected: then it knows that this
    /// process is lost.
    pub(crate) fn change_if_connected(&self, change: Change) {
        if let Ok(runtime) = self.runtime()
            && let Some(channel) = runtime.mesh().current_channel(self.runtime.id)
        {
            send(runtime, &channel, self.change_parcel(change), None);
        }
    }

    fn change_parcel(&self, change: Change) -> Vec<u8> {
        let mut payload = mesh::port_head(PortId::HOLDERS);
        change.append(&mut payload, self.id);
        payload
    }

    /// This process's node, if the port is of its session.
    pub(crate) fn runtime(&self) -> Result<&'static Runtime> {
        Runtime::of_session(self.session, &self.name)
    }

    /// A message to it, whose body is to be appended.
    pub(crate) fn payload(&self) -> Vec<u8> {
        mesh::port_head(self.id)
    }

    /// Bytes before the body of a message.
    pub(crate) const HEAD: usize = mesh::PORT_HEAD;

    /// As [`payload`](PortRef::payload), in memory that is there already.
    pub(crate) fn begin(&self, payload: &mut Vec<u8>) {
        payload.clear();
        mesh::begin_port(payload, self.id);
    }

    /// Sends what began as [`payload`](PortRef::payload); `then` is given the answer, on the thread
    /// that brings it.
    pub(crate) fn ask_then(
        &self,
        payload: Vec<u8>,
        then: impl FnOnce(Result<Bytes>) + Send + 'static,
    ) {
        let name = Arc::clone(&self.name);
        let told = Waiter::Callback(Box::new(move |answer| then(conclude(&name, answer))));
        match self.channel() {
            Ok((runtime, channel)) => send(runtime, &channel, payload, Some(told)),
            Err(error) => {
                if let Waiter::Callback(then) = told {
                    then(Err(Unanswered::Refused(error)));
                }
            }
        }
    }

    /// Sends what began as [`payload`](PortRef::payload); the future is the answer.
    pub(crate) fn ask(&self, payload: Vec<u8>) -> Asked {
        let (sender, answer) = oneshot::channel();
        match self.channel() {
            Ok((runtime, channel)) => {
                send(runtime, &channel, payload, Some(Waiter::Patient(sender)))
            }
            Err(error) => drop(sender.send(Err(Unanswered::Refused(error)))),
        }
        Asked { name: Arc::clone(&self.name), answer }
    }

    /// Sends what began as [`payload`](PortRef::payload) and wants no answer.
    pub(crate) fn tell(&self, payload: Vec<u8>) {
        if let Ok((runtime, channel)) = self.channel() {
            send(runtime, &channel, payload, None);
        }
    }

    fn channel(&self) -> Result<(&'static Runtime, Arc<Channel>)> {
        let runtime = self.runtime()?;
        Ok((runtime, runtime.mesh().channel(&self.runtime)))
    }
}

fn send(
    runtime: &'static Runtime,
    channel: &Arc<Channel>,
    payload: Vec<u8>,
    waiter: Option<Waiter>,
) {
    let pending = waiter.map(Pending::new);
    if let Err(refused) = channel.send(Payload::raw(payload), pending)
        && let Some(pending) = refused.pending
    {
        // Not at once: the sender may hold what is needed to act on it.
        let reason = refused.reason;
        runtime.spawn(move || async move { pending.waiter.tell(Err(Unanswered::Lost(reason))) });
    }
}

/// The answer of a port.
#[derive(Debug)]
pub(crate) struct Asked {
    name: Arc<str>,
    answer: oneshot::Receiver<Answer>,
}

impl Future for Asked {
    type Output = Result<Bytes>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Bytes>> {
        let gone =
            |_| Err(Unanswered::Lost(ExitReason::LinkLost("its process stopped answering".into())));
        let answer = ready!(Pin::new(&mut self.answer).poll(context)).unwrap_or_else(gone);
        Poll::Ready(conclude(&self.name, answer))
    }
}

fn conclude(name: &Arc<str>, answer: Answer) -> Result<Bytes> {
    let what = || name.to_string();
    answer.map_err(|unanswered| match unanswered {
        Unanswered::Lost(reason) | Unanswered::Failed(CallFailure::Stopped(reason)) => {
            Error::OwnerEnded { what: what(), reason }
        }
        Unanswered::Failed(CallFailure::Failed(failure)) => {
            Error::Call { actor: what(), message: "a request", failure }
        }
        Unanswered::Failed(CallFailure::Full { capacity }) => {
            Error::MailboxFull { name: what(), capacity }
        }
        Unanswered::TimedOut(limit) => Error::TimedOut { what: what(), limit },
        Unanswered::Refused(error) => error,
    })
}
