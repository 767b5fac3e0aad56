//! The shared objects of this process, such as queues and locks, as other processes reach them.
//!
//! A [`Port`] is a state machine that handles a message at once, on the thread that receives it,
//! and answers when it can. It knows the peer of each message, and learns when a peer is lost. It
//! never decodes the user's values, and runs no code of the user.

use std::any::Any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use dashmap::DashMap;
use fiber_core::{Error, ExitReason, Failure, FailureKind};
use fiber_transport::{Link, Message, Received};
use fiber_values::blob::Blobs;
use fiber_values::codec;
use serde::Serialize;

use super::holders::{Change, Holders};
use super::inbox::Responder;
use super::wire::{self, AnswerFrame, CallFailure, PortId};

/// Dropped ports are removed when there are this many, or twice as many as were left last time.
const MIN_REMOVED: usize = 64;

/// A shared object of this process.
pub trait Port: Any + Send + Sync {
    /// Handles a message.
    fn receive(&self, request: Request);

    /// Handles the loss of a peer, or of its link. It may be called more than once.
    fn lost(&self, peer: PeerId);
}

impl dyn Port {
    /// Returns the object itself, if it is of this type.
    pub fn downcast_arc<P: Port>(self: Arc<Self>) -> Option<Arc<P>> {
        (self as Arc<dyn Any + Send + Sync>).downcast().ok()
    }
}

/// A process at the other end of a link, for as long as the link lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u64);

impl PeerId {
    /// This process.
    pub const LOCAL: PeerId = PeerId(0);
    /// Some other process.
    #[cfg(any(test, feature = "simulation"))]
    pub const OTHER: PeerId = PeerId(1);
}

/// A message to a port.
pub struct Request {
    /// The bytes and blobs of the message, whose meaning the port knows.
    pub body: Received,
    /// The sender, to which the port answers.
    pub requester: Requester,
    /// The link that it came through, or `None` if it came from this process.
    pub link: Option<Arc<dyn Link>>,
}

/// The sender of a message. It gets the answer, if it wants one.
pub struct Requester {
    /// The process that has sent the message. [`Port::lost`] names it when it is lost.
    pub peer: PeerId,
    responder: Responder,
}

impl Requester {
    /// Returns the sender of a message from `peer`, which `responder` answers.
    pub(crate) fn new(peer: PeerId, responder: Responder) -> Requester {
        Requester { peer, responder }
    }

    /// Answers with a value, which is encoded.
    pub fn answer<T: Serialize>(self, value: &T) {
        let mut frame = wire::answer_head();
        match codec::append_apart(&mut frame, value) {
            Ok(blobs) => self.responder.answer(AnswerFrame { frame, blobs }),
            Err(error) => self.fail(FailureKind::Result, &error),
        }
    }

    /// Answers with these bytes.
    pub fn answer_bytes(self, bytes: &[u8]) {
        let mut frame = wire::answer_head();
        frame.extend_from_slice(bytes);
        self.responder.answer(frame);
    }

    /// Answers that the request has failed: `kind` says in which part, `problem` why.
    pub fn fail(self, kind: FailureKind, problem: &dyn std::fmt::Display) {
        self.responder.fail(&CallFailure::Failed(Failure::new(kind, problem)));
    }

    /// Answers with an error of the object's journal.
    pub fn fail_with(self, error: &Error) {
        match error {
            Error::Journal { journal, cause } => self.responder.fail(&CallFailure::Journal {
                journal: journal.clone().into(),
                cause: cause.to_string(),
            }),
            other => self.fail(FailureKind::Result, other),
        }
    }

    /// Answers that the object has ended.
    pub(crate) fn ended(self, reason: ExitReason) {
        self.responder.fail(&CallFailure::Stopped(reason));
    }
}

/// The holders of a port, and the port itself while other processes hold it.
#[derive(Default)]
struct Held {
    holders: Holders,
    port: Option<Arc<dyn Port>>,
}

/// The ports of this process.
#[derive(Default)]
pub struct Ports {
    /// A dropped port keeps its memory until it is removed.
    open: DashMap<PortId, Weak<dyn Port>>,
    /// How many there may be before dropped ones are removed.
    max_open: AtomicUsize,
    /// Ports that other processes hold, or will hold.
    held: DashMap<PortId, Held>,
    last_port: AtomicU64,
    last_peer: AtomicU64,
}

impl Ports {
    /// Opens the port that `make` makes, until it is dropped.
    pub fn open<P: Port + 'static>(&self, make: impl FnOnce(PortId) -> P) -> Arc<P> {
        self.open_cyclic(|id, _| make(id))
    }

    /// As [`open`](Ports::open). `make` gets the port itself, too.
    pub fn open_cyclic<P: Port + 'static>(
        &self,
        make: impl FnOnce(PortId, Weak<P>) -> P,
    ) -> Arc<P> {
        let id = PortId(self.last_port.fetch_add(1, Ordering::Relaxed) + 1);
        let port = Arc::new_cyclic(|this| make(id, Weak::clone(this)));
        let weak: Weak<P> = Arc::downgrade(&port);
        if self.open.len() >= self.max_open.load(Ordering::Relaxed) {
            self.open.retain(|_, port| port.strong_count() > 0);
            self.held.retain(|id, _| self.open.contains_key(id));
            self.max_open.store(MIN_REMOVED.max(2 * self.open.len()), Ordering::Relaxed);
        }
        self.open.insert(id, weak);
        port
    }

    /// Opens a port of this number, which stays open as long as the session.
    pub(crate) fn open_for_good<P: Port + 'static>(&self, id: PortId, port: P) -> Arc<P> {
        let port = Arc::new(port);
        let weak: Weak<P> = Arc::downgrade(&port);
        self.open.insert(id, weak);
        // As the parts of a session, it is never freed.
        std::mem::forget(Arc::clone(&port));
        port
    }

    /// Changes the holders of a port. The port ends if no process holds it.
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
        // No map is locked here: dropping the last reference runs code of the port.
        drop((freed, port));
    }

    /// Forgets a lost process as a holder of these ports.
    pub(crate) fn forget_lost(&self, ports: Vec<PortId>) {
        ports.into_iter().for_each(|port| self.hold(port, Holders::forget_lost));
    }

    /// Returns an open port, or `None` if it was never opened or is closed.
    pub fn get(&self, id: PortId) -> Option<Arc<dyn Port>> {
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
        let (port, change) = match codec::decode::<(PortId, Change)>(&request.body.bytes) {
            Ok(change) => change,
            Err(error) => return request.requester.fail(FailureKind::Arguments, &error),
        };
        self.hold(port, |holders| holders.apply(request.requester.peer, change));
        request.requester.answer(&());
    }

    /// Handles the loss of a peer. Returns the ports that it held, which stay until
    /// [`forget_lost`](Ports::forget_lost).
    pub(crate) fn lost(&self, peer: PeerId) -> Vec<PortId> {
        let open = self.open.iter().filter_map(|entry| Some((*entry.key(), entry.upgrade()?)));
        let mut open: Vec<_> = open.collect();
        open.sort_unstable_by_key(|(id, _)| *id);
        open.iter().for_each(|(_, port)| port.lost(peer));
        let held = self.held.iter().filter(|held| held.holders.is_attached(peer));
        let mut held: Vec<_> = held.map(|held| *held.key()).collect();
        held.sort_unstable();
        held.iter().for_each(|port| self.hold(*port, |holders| holders.lose(peer)));
        held
    }
}

/// Sends a message to a port at the other end of a link, which began as [`port_head`], with a body
/// and blobs. It wants no answer.
///
/// [`port_head`]: super::port_head
pub fn push(link: &Arc<dyn Link>, head: Vec<u8>, body: Bytes, blobs: Blobs) {
    // If the link is closed, its reader reports the loss.
    let _ = link.send(Message { blobs, ..Message::with_body(head, body) });
}
