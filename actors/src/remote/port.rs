//! What other nodes can speak to beside actors: fiber's own shared objects, such as queues and locks.
//!
//! A [`Port`] is a plain state machine that acts on a message at once, on the thread that brings it, and answers when it
//! has an answer. It knows which peer a message came from, and is told when that peer is lost. What it holds is never
//! decoded, and no user code runs in it.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use fiber_core::{Error, ExitReason, Failure, FailureKind, NodeId, Result, codec};
use fiber_transport::{Link, Message};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::channel::{Answer, Channel, Pending, Unanswered};
use super::deadlines::{Deadlines, Waiter};
use super::inbox::Responder;
use super::question;
use super::wire::{self, CallFailure, NodeRef, Parcel};
use crate::node::Node;

/// Something of this node that others can speak to.
pub(crate) trait Port: Send + Sync {
    /// Itself, for who knows what it is.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// Acts on a message.
    fn receive(&self, letter: Letter);

    /// The peer is gone, or its link is. More than one word of it may come.
    fn lost(&self, peer: PeerId);
}

/// A process at the other end of a link, for as long as the link holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerId(u64);

impl PeerId {
    /// This very process.
    pub(crate) const HERE: PeerId = PeerId(0);
    /// Some other process.
    #[cfg(test)]
    pub(crate) const ANOTHER: PeerId = PeerId(1);
}

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PortId(pub(crate) u64);

/// A message that has come.
pub(crate) struct Letter {
    pub(crate) body: Bytes,
    pub(crate) asker: Asker,
    /// The link that it came through; none if it comes from this process.
    pub(crate) link: Option<Arc<dyn Link>>,
}

/// Who sent a message, and waits for the answer if one is wanted.
pub(crate) struct Asker {
    pub(crate) peer: PeerId,
    responder: Responder,
}

impl Asker {
    pub(super) fn new(peer: PeerId, responder: Responder) -> Asker {
        Asker { peer, responder }
    }

    /// Answers with an encoded value.
    pub(crate) fn answer<T: Serialize>(self, value: &T) {
        let mut frame = wire::answer_head();
        match codec::append(&mut frame, value) {
            Ok(()) => self.responder.answer(frame),
            Err(error) => self.fail(FailureKind::Result, &error),
        }
    }

    /// Answers with these bytes.
    pub(crate) fn answer_bytes(self, bytes: &[u8]) {
        let mut frame = wire::answer_head();
        frame.extend_from_slice(bytes);
        self.responder.answer(frame);
    }

    pub(crate) fn fail(self, kind: FailureKind, problem: &dyn std::fmt::Display) {
        self.responder.fail(&CallFailure::Failed(Failure::new(kind, problem)));
    }

    /// Answers that what was asked has ended.
    pub(crate) fn ended(self, reason: ExitReason) {
        self.responder.fail(&CallFailure::Stopped(reason));
    }
}

/// The ports of this node.
#[derive(Default)]
pub(crate) struct Ports {
    open: DashMap<PortId, Weak<dyn Port>>,
    /// Those that live for as long as this process: handles of them are elsewhere.
    kept: DashMap<PortId, Arc<dyn Port>>,
    last_port: AtomicU64,
    last_peer: AtomicU64,
}

impl Ports {
    /// Lets others speak to what `make` makes, for as long as it is alive.
    pub(crate) fn open<P: Port + 'static>(&self, make: impl FnOnce(PortId) -> P) -> Arc<P> {
        let id = PortId(self.last_port.fetch_add(1, Ordering::Relaxed) + 1);
        let port = Arc::new(make(id));
        let weak: Weak<P> = Arc::downgrade(&port);
        self.open.insert(id, weak);
        port
    }

    /// What is no longer alive.
    pub(crate) fn close(&self, id: PortId) {
        self.open.remove(&id);
    }

    /// Keeps a port alive until this process ends.
    pub(crate) fn keep(&self, id: PortId, port: Arc<dyn Port>) {
        self.kept.insert(id, port);
    }

    pub(crate) fn get(&self, id: PortId) -> Option<Arc<dyn Port>> {
        self.open.get(&id).and_then(|port| port.upgrade())
    }

    pub(super) fn next_peer(&self) -> PeerId {
        PeerId(self.last_peer.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn deliver(&self, port: PortId, letter: Letter) {
        match self.get(port) {
            Some(port) => port.receive(letter),
            None => letter.asker.ended(question::unknown()),
        }
    }

    pub(super) fn lost(&self, peer: PeerId) {
        let ports: Vec<_> = self.open.iter().filter_map(|port| port.upgrade()).collect();
        ports.into_iter().for_each(|port| port.lost(peer));
    }
}

/// Where a port is, and what errors call it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortRef {
    session: u64,
    pub(crate) name: Arc<str>,
    node: NodeRef,
    pub(crate) id: PortId,
}

impl PortRef {
    /// A port of this node.
    pub(crate) fn here(node: &'static Node, name: &str, id: PortId) -> Result<PortRef> {
        let home = NodeRef { id: node.id(), address: node.address_now()?.into() };
        Ok(PortRef { session: node.mesh().session(), name: name.into(), node: home, id })
    }

    /// The node where it is.
    pub(crate) fn home(&self) -> NodeId {
        self.node.id
    }

    /// The port itself, if it is of this process.
    pub(crate) fn if_here(&self) -> Option<Arc<dyn Port>> {
        let node = Node::current().filter(|node| node.id() == self.node.id)?;
        node.mesh().ports().get(self.id)
    }

    /// This process's node, if the port is of its session.
    pub(crate) fn node(&self) -> Result<&'static Node> {
        let node = Node::get()?;
        if node.mesh().session() != self.session {
            return Err(Error::OtherSession { name: self.name.to_string() });
        }
        Ok(node)
    }

    /// A message to it, whose body is to be appended.
    pub(crate) fn parcel(&self) -> Vec<u8> {
        wire::port_head(self.id)
    }

    /// Bytes before the body of a message.
    pub(crate) const HEAD: usize = wire::PORT_HEAD;

    /// As [`parcel`](PortRef::parcel), in memory that is there already.
    pub(crate) fn begin(&self, parcel: &mut Vec<u8>) {
        parcel.clear();
        wire::begin_port(parcel, self.id);
    }

    /// Sends what began as [`parcel`](PortRef::parcel); `then` is given the answer, on the thread that brings it.
    pub(crate) fn ask_then(&self, parcel: Vec<u8>, then: impl FnOnce(Result<Bytes>) + Send + 'static) {
        let name = Arc::clone(&self.name);
        let told = Waiter::Callback(Box::new(move |answer| then(conclude(&name, answer))));
        match self.channel() {
            Ok((node, channel)) => send(node, &channel, parcel, Some(told)),
            Err(error) => {
                if let Waiter::Callback(then) = told {
                    then(Err(Unanswered::Refused(error)));
                }
            }
        }
    }

    /// Sends what began as [`parcel`](PortRef::parcel); the future is the answer.
    pub(crate) fn ask(&self, parcel: Vec<u8>) -> Asked {
        let (sender, answer) = oneshot::channel();
        match self.channel() {
            Ok((node, channel)) => send(node, &channel, parcel, Some(Waiter::Patient(sender))),
            Err(error) => drop(sender.send(Err(Unanswered::Refused(error)))),
        }
        Asked { name: Arc::clone(&self.name), answer }
    }

    /// Sends what began as [`parcel`](PortRef::parcel) and wants no answer.
    pub(crate) fn tell(&self, parcel: Vec<u8>) {
        if let Ok((node, channel)) = self.channel() {
            send(node, &channel, parcel, None);
        }
    }

    fn channel(&self) -> Result<(&'static Node, Arc<Channel>)> {
        let node = self.node()?;
        Ok((node, node.mesh().channel(node, &self.node)))
    }
}

fn send(node: &'static Node, channel: &Arc<Channel>, parcel: Vec<u8>, waiter: Option<Waiter>) {
    let pending = waiter.map(|waiter| Pending { waiter, route: None, again: None, load: None });
    if let Err(refused) = channel.send(Parcel::raw(parcel), pending)
        && let Some(pending) = refused.pending
    {
        // Not at once: the sender may hold what is needed to act on it.
        let reason = refused.reason;
        node.spawn(move || async move { pending.waiter.tell(Err(Unanswered::Lost(reason))) });
    }
}

/// A message to a port at the other end of a link, that wants no answer; its body is to be appended.
pub(crate) fn push_head(port: PortId) -> Vec<u8> {
    wire::port_head(port)
}

/// Sends what began as [`push_head`], and a body behind it.
pub(crate) fn push(link: &Arc<dyn Link>, head: Vec<u8>, body: Bytes) {
    // That the link is closed is told by its loss.
    let _ = link.send(Message { head, body });
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
        let gone = |_| Err(Unanswered::Lost(ExitReason::LinkLost("its process stopped answering".into())));
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
        Unanswered::Failed(CallFailure::Full { capacity }) => Error::MailboxFull { name: what(), capacity },
        Unanswered::TimedOut(limit) => Error::TimedOut { what: what(), limit },
        Unanswered::Refused(error) => error,
    })
}

/// Becomes ready when some time has passed, whatever polls it.
pub(crate) struct Alarm {
    waiter: Option<Waiter>,
    over: oneshot::Receiver<Answer>,
}

impl Alarm {
    pub(crate) fn after(node: &'static Node, time: Duration) -> Alarm {
        let (sender, over) = oneshot::channel();
        Alarm { waiter: Some(Deadlines::within(node, time, sender)), over }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.over).poll(context).map(drop)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // Takes the deadline off the list.
        if let Some(waiter) = self.waiter.take() {
            waiter.tell(Ok(Bytes::new()));
        }
    }
}
