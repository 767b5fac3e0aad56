//! What goes from this node to another.

use std::sync::Arc;

use bytes::Bytes;
use fiber_core::{ExitReason, ProcessId};
use fiber_transport::{Link, Message};
use parking_lot::Mutex;

use super::inbox::ReplyTo;
use super::pending::{Calls, Pending};
use super::registry::Registry;
use super::wire::{CallFailure, CallId, Frame, NO_ANSWER, Payload};

/// The way to one node, and the calls that wait for its answers. It is used until it closes, and
/// then never again.
pub(crate) struct Channel {
    to: ProcessId,
    state: Mutex<State>,
    calls: Arc<Calls>,
}

struct State {
    way: Way,
    /// Whether anything was sent of which nobody hears.
    unheard: bool,
}

enum Way {
    /// Being connected; what is sent waits.
    Opening(Vec<Message>),
    Link(Arc<dyn Link>),
    /// To this very node.
    Here(&'static Registry),
    Closed(ExitReason),
}

/// A call that can't be sent, because its channel is closed.
pub(crate) struct Refused {
    pub(crate) payload: Payload,
    pub(crate) pending: Option<Pending>,
    pub(crate) reason: ExitReason,
}

impl Channel {
    pub(crate) fn opening(to: ProcessId) -> Channel {
        Channel::new(to, Way::Opening(Vec::new()))
    }

    pub(crate) fn here(own: ProcessId, registry: &'static Registry) -> Channel {
        Channel::new(own, Way::Here(registry))
    }

    fn new(to: ProcessId, way: Way) -> Channel {
        let state = Mutex::new(State { way, unheard: false });
        Channel { to, state, calls: Arc::new(Calls::new()) }
    }

    pub(crate) fn to(&self) -> ProcessId {
        self.to
    }

    /// Sends a call; without somebody who waits for it, one that wants no answer.
    ///
    /// # Errors
    /// Both back, and why the channel is closed.
    pub(crate) fn send(
        &self,
        payload: Payload,
        pending: Option<Pending>,
    ) -> Result<(), Box<Refused>> {
        let mut state = self.state.lock();
        if let Way::Closed(reason) = &state.way {
            let reason = reason.clone();
            return Err(Box::new(Refused { payload, pending, reason }));
        }
        let call = match pending {
            Some(pending) => self.calls.add(pending),
            None => {
                state.unheard = true;
                NO_ANSWER
            }
        };
        match &mut state.way {
            Way::Opening(waiting) => waiting.push(payload.into_message(call)),
            Way::Link(link) => {
                let link = Arc::clone(link);
                drop(state);
                // That it is closed is about to be noticed, and told to all who wait.
                let _ = link.send(payload.into_message(call));
            }
            Way::Here(registry) => {
                let registry = *registry;
                drop(state);
                let message = payload.into_message(call);
                let frame =
                    if message.body.is_empty() { message.head.into() } else { message.body };
                registry.accept(Frame::read(frame), ReplyTo::Here(Arc::clone(&self.calls)));
            }
            Way::Closed(_) => unreachable!("that was looked at"),
        }
        Ok(())
    }

    /// It is connected: what waits can go.
    pub(crate) fn open(&self, link: &Arc<dyn Link>) {
        let mut state = self.state.lock();
        if let Way::Opening(waiting) = &mut state.way {
            for message in std::mem::take(waiting) {
                let _ = link.send(message);
            }
            state.way = Way::Link(Arc::clone(link));
        }
    }

    /// Whether anything was sent of which it is not known that it has arrived.
    pub(crate) fn has_unheard(&self) -> bool {
        self.state.lock().unheard
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.state.lock().way, Way::Link(_))
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state.lock().way, Way::Closed(_))
    }

    /// Whether this is the link through which it sends.
    pub(crate) fn uses(&self, link: &Arc<dyn Link>) -> bool {
        // The data pointers are compared: a vtable may have several addresses.
        matches!(&self.state.lock().way, Way::Link(used) if std::ptr::addr_eq(Arc::as_ptr(used), Arc::as_ptr(link)))
    }

    /// An answer has come.
    pub(crate) fn settle(&self, call: CallId, answer: Result<Bytes, CallFailure>) {
        self.calls.settle(call, answer);
    }

    /// The node is gone, or can't be reached. The calls that wait are given, in order; none if it
    /// has closed before.
    pub(crate) fn close(&self, reason: &ExitReason) -> Option<Vec<Pending>> {
        let mut state = self.state.lock();
        if matches!(state.way, Way::Closed(_)) {
            return None;
        }
        state.way = Way::Closed(reason.clone());
        Some(self.calls.take())
    }
}
