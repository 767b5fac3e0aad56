//! What goes from this node to another.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{ExitReason, NodeId};
use fiber_transport::{Link, Message};
use parking_lot::Mutex;

use super::deadlines::Waiter;
use super::inbox::ReplyTo;
use super::mesh::Mesh;
use super::route::Route;
use super::wire::{CallFailure, CallId, Frame, NO_ANSWER, Parcel};
use crate::node::Node;

/// The way to one node, and the calls that wait for its answers. It is used until it closes, and then never again.
pub(super) struct Channel {
    node: &'static Node,
    to: NodeId,
    state: Mutex<State>,
}

struct State {
    way: Way,
    last: CallId,
    pending: HashMap<CallId, Pending>,
    /// Whether anything was sent of which nobody hears.
    unheard: bool,
}

enum Way {
    /// Being connected; what is sent waits.
    Opening(Vec<Message>),
    Link(Arc<dyn Link>),
    /// To this very node.
    Here,
    Closed(ExitReason),
}

/// A call that waits for its answer.
pub(super) struct Pending {
    pub(super) waiter: Waiter,
    /// How it finds its actor again.
    pub(super) route: Option<Arc<Route>>,
    /// What is to be sent again if the actor dies.
    pub(super) again: Option<Parcel>,
    /// Counts it for as long as it waits.
    pub(super) load: Option<Load>,
}

impl Pending {
    /// Tells who waits what came of the call.
    pub(super) fn tell(self, answer: Answer) {
        // First, so that who has the answer finds it counted no more.
        drop(self.load);
        self.waiter.tell(answer);
    }
}

/// Counts a call that has not been answered.
pub(crate) struct Load(Arc<AtomicUsize>);

impl Load {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Load {
        count.fetch_add(1, Ordering::Relaxed);
        Load(Arc::clone(count))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call that can't be sent, because its channel is closed.
pub(super) struct Refused {
    pub(super) parcel: Parcel,
    pub(super) pending: Option<Pending>,
    pub(super) reason: ExitReason,
}

/// What comes of a call.
pub(super) type Answer = Result<Bytes, Unanswered>;

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(super) enum Unanswered {
    Failed(CallFailure),
    /// Its actor, or the node, is gone.
    Lost(ExitReason),
    TimedOut(Duration),
    /// It could not be asked at all.
    Refused(fiber_core::Error),
}

impl Channel {
    pub(super) fn opening(node: &'static Node, to: NodeId) -> Channel {
        Channel::new(node, to, Way::Opening(Vec::new()))
    }

    pub(super) fn here(node: &'static Node) -> Channel {
        Channel::new(node, node.id(), Way::Here)
    }

    fn new(node: &'static Node, to: NodeId, way: Way) -> Channel {
        let state = State { way, last: NO_ANSWER, pending: HashMap::new(), unheard: false };
        Channel { node, to, state: Mutex::new(state) }
    }

    pub(super) fn to(&self) -> NodeId {
        self.to
    }

    pub(super) fn node(&self) -> &'static Node {
        self.node
    }

    fn mesh(&self) -> &'static Mesh {
        self.node.mesh()
    }

    /// Sends a call; without somebody who waits for it, one that wants no answer.
    ///
    /// # Errors
    /// Both back, and why the channel is closed.
    pub(super) fn send(self: &Arc<Self>, parcel: Parcel, pending: Option<Pending>) -> Result<(), Box<Refused>> {
        let mut state = self.state.lock();
        if let Way::Closed(reason) = &state.way {
            let reason = reason.clone();
            return Err(Box::new(Refused { parcel, pending, reason }));
        }
        let mut call = NO_ANSWER;
        if let Some(pending) = pending {
            state.last += 1;
            call = state.last;
            state.pending.insert(call, pending);
        } else {
            state.unheard = true;
        }
        match &mut state.way {
            Way::Opening(waiting) => waiting.push(parcel.into_message(call)),
            Way::Link(link) => {
                let link = Arc::clone(link);
                drop(state);
                // That it is closed is about to be noticed, and told to all who wait.
                let _ = link.send(parcel.into_message(call));
            }
            Way::Here => {
                drop(state);
                let message = parcel.into_message(call);
                let frame = if message.body.is_empty() { message.head.into() } else { message.body };
                self.mesh().accept(self.node, Frame::read(frame), ReplyTo::Here(Arc::clone(self)));
            }
            Way::Closed(_) => unreachable!("that was looked at"),
        }
        Ok(())
    }

    /// It is connected: what waits can go.
    pub(super) fn open(&self, link: &Arc<dyn Link>) {
        let mut state = self.state.lock();
        if let Way::Opening(waiting) = &mut state.way {
            for message in std::mem::take(waiting) {
                let _ = link.send(message);
            }
            state.way = Way::Link(Arc::clone(link));
        }
    }

    /// Whether anything was sent of which it is not known that it has arrived.
    pub(super) fn has_unheard(&self) -> bool {
        self.state.lock().unheard
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state.lock().way, Way::Closed(_))
    }

    /// Whether this is the link through which it sends.
    pub(super) fn uses(&self, link: &Arc<dyn Link>) -> bool {
        // The data pointers are compared: a vtable may have several addresses.
        matches!(&self.state.lock().way, Way::Link(used) if std::ptr::addr_eq(Arc::as_ptr(used), Arc::as_ptr(link)))
    }

    /// An answer has come.
    pub(super) fn settle(&self, call: CallId, answer: Result<Bytes, CallFailure>) {
        let pending = self.state.lock().pending.remove(&call);
        if let Some(pending) = pending {
            pending.tell(answer.map_err(Unanswered::Failed));
        }
    }

    /// The node is gone, or can't be reached. Calls that may be sent again are, the others fail.
    pub(super) fn close(self: &Arc<Self>, reason: &ExitReason) {
        let mut state = self.state.lock();
        if matches!(state.way, Way::Closed(_)) {
            return;
        }
        state.way = Way::Closed(reason.clone());
        let mut pending: Vec<_> = std::mem::take(&mut state.pending).into_iter().collect();
        drop(state);
        self.mesh().forget(self);
        pending.sort_unstable_by_key(|(call, _)| *call);
        let mut rerouted: Vec<(Arc<Route>, Vec<Pending>)> = Vec::new();
        for (_, mut pending) in pending {
            let Some(route) = pending.route.take() else {
                pending.tell(Err(Unanswered::Lost(reason.clone())));
                continue;
            };
            match rerouted.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &route)) {
                Some((_, calls)) => calls.push(pending),
                None => rerouted.push((route, vec![pending])),
            }
        }
        for (route, calls) in rerouted {
            route.lost(self, calls, reason);
        }
    }
}
