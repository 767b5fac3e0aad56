//! What other nodes can speak to beside actors: fiber's own shared objects, such as queues and
//! locks.
//!
//! A [`Port`] is a plain state machine that acts on a message at once, on the thread that brings
//! it, and answers when it has an answer. It knows which peer a message came from, and is told when
//! that peer is lost. What it holds is never decoded, and no user code runs in it.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use dashmap::DashMap;
use fiber_core::{ExitReason, Failure, FailureKind, codec};
use fiber_transport::{Link, Message};
use serde::Serialize;

use super::holders::{Change, Holders};
use super::inbox::Responder;
use super::wire::{self, CallFailure, PortId};

/// Something of this node that others can speak to.
pub(crate) trait Port: Send + Sync {
    /// Itself, for who knows what it is.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// Acts on a message.
    fn receive(&self, request: Request);

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

/// A message that has come.
pub(crate) struct Request {
    pub(crate) body: Bytes,
    pub(crate) requester: Requester,
    /// The link that it came through; none if it comes from this process.
    pub(crate) link: Option<Arc<dyn Link>>,
}

/// Who sent a message, and waits for the answer if one is wanted.
pub(crate) struct Requester {
    pub(crate) peer: PeerId,
    responder: Responder,
}

impl Requester {
    pub(crate) fn new(peer: PeerId, responder: Responder) -> Requester {
        Requester { peer, responder }
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

/// Who holds a port from elsewhere, and the port, while anyone does.
#[derive(Default)]
struct Held {
    holders: Holders,
    port: Option<Arc<dyn Port>>,
}

/// The ports of this node.
#[derive(Default)]
pub(crate) struct Ports {
    open: DashMap<PortId, Weak<dyn Port>>,
    /// Those that others hold, or will hold.
    held: DashMap<PortId, Held>,
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
        self.held.remove(&id);
    }

    /// Changes who holds a port from elsewhere. It ends if that is nobody, and it has no handles
    /// here.
    pub(crate) fn hold(&self, id: PortId, change: impl FnOnce(&mut Holders)) {
        let Some(port) = self.get(id) else { return };
        let mut held = self.held.entry(id).or_default();
        change(&mut held.holders);
        let freed = if held.holders.are_gone() {
            held.port.take()
        } else {
            held.port.get_or_insert_with(|| Arc::clone(&port));
            None
        };
        drop(held);
        self.held.remove_if(&id, |_, held| held.holders.is_empty());
        // With no map locked: the last reference closes the port.
        drop((freed, port));
    }

    /// Forgets a process that was lost a while ago, as a holder of these ports.
    pub(crate) fn forget_lost(&self, ports: Vec<PortId>) {
        ports.into_iter().for_each(|port| self.hold(port, Holders::forget_lost));
    }

    pub(crate) fn get(&self, id: PortId) -> Option<Arc<dyn Port>> {
        self.open.get(&id).and_then(|port| port.upgrade())
    }

    pub(crate) fn next_peer(&self) -> PeerId {
        PeerId(self.last_peer.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn deliver(&self, port: PortId, request: Request) {
        match self.get(port) {
            _ if port == PortId::HOLDERS => self.change(request),
            Some(port) => port.receive(request),
            None => request.requester.ended(wire::unknown()),
        }
    }

    fn change(&self, request: Request) {
        let Some((port, change)) = Change::read(request.body) else {
            return request.requester.fail(FailureKind::Arguments, &"it is no change of holders");
        };
        self.hold(port, |holders| holders.apply(request.requester.peer, change));
        request.requester.answer(&());
    }

    /// A peer is gone. Returns the ports that it held, which stay until
    /// [`forget_lost`](Ports::forget_lost).
    pub(crate) fn lost(&self, peer: PeerId) -> Vec<PortId> {
        let ports: Vec<_> = self.open.iter().filter_map(|port| port.upgrade()).collect();
        ports.into_iter().for_each(|port| port.lost(peer));
        let held = self.held.iter().filter(|held| held.holders.is_attached(peer));
        let held: Vec<_> = held.map(|held| *held.key()).collect();
        held.iter().for_each(|port| self.hold(*port, |holders| holders.lose(peer)));
        held
    }
}

/// A message to a port at the other end of a link, that wants no answer; its body is to be
/// appended.
pub(crate) fn push_head(port: PortId) -> Vec<u8> {
    wire::port_head(port)
}

/// Sends what began as [`push_head`], and a body behind it.
pub(crate) fn push(link: &Arc<dyn Link>, head: Vec<u8>, body: Bytes) {
    // That the link is closed is told by its loss.
    let _ = link.send(Message { head, body });
}
