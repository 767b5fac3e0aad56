//! Connections from this process to others, for outgoing calls.

use std::sync::Arc;

use fiber_core::{ExitReason, ProcessId};
use fiber_transport::{Link, Message, Received};
use parking_lot::Mutex;

use super::deadlines::Unanswered;
use super::inbox::ReplyTo;
use super::pending::{Calls, Pending};
use super::port::PeerId;
use super::registry::Registry;
use super::wire::{self, CallFailure, CallId, Frame, NO_ANSWER, Payload};

/// The connection to one process, and the calls that wait for its answers. It is used until it
/// closes, and not opened again.
pub struct Channel {
    pub(super) to: ProcessId,
    state: Mutex<ChannelState>,
    calls: Arc<Calls>,
}

struct ChannelState {
    stage: Stage,
    /// Whether messages without an answer were sent: this process does not know whether they
    /// arrived.
    unconfirmed: bool,
}

enum Stage {
    /// Connecting; messages wait.
    Opening(Vec<Message>),
    Linked(Arc<dyn Link>),
    /// To this process itself.
    Local(&'static Registry),
    Closed(ExitReason),
}

/// A call that was not sent because its channel is closed.
pub struct Refused {
    pub(crate) payload: Payload,
    pub pending: Option<Pending>,
    pub reason: ExitReason,
}

impl Refused {
    /// Completes the call, if it wants an answer.
    pub(crate) fn complete(self) {
        if let Some(pending) = self.pending {
            pending.complete(Err(Unanswered::Lost(self.reason)));
        }
    }
}

impl Channel {
    pub(crate) fn opening(to: ProcessId) -> Channel {
        Channel::new(to, Stage::Opening(Vec::new()))
    }

    pub(crate) fn local(own: ProcessId, registry: &'static Registry) -> Channel {
        Channel::new(own, Stage::Local(registry))
    }

    fn new(to: ProcessId, stage: Stage) -> Channel {
        let state = Mutex::new(ChannelState { stage, unconfirmed: false });
        Channel { to, state, calls: Arc::default() }
    }

    /// Sends a call. Without `pending` it is one that wants no answer.
    ///
    /// # Errors
    /// The call, and the reason why the channel is closed.
    pub fn send(&self, payload: Payload, pending: Option<Pending>) -> Result<(), Box<Refused>> {
        let mut state = self.state.lock();
        if let Stage::Closed(reason) = &state.stage {
            let reason = reason.clone();
            return Err(Box::new(Refused { payload, pending, reason }));
        }
        let call = match pending {
            Some(pending) => self.calls.add(pending),
            None => {
                state.unconfirmed = true;
                NO_ANSWER
            }
        };
        match &mut state.stage {
            Stage::Opening(waiting) => waiting.push(payload.into_message(call)),
            Stage::Linked(link) => {
                let link = Arc::clone(link);
                drop(state);
                payload.send(call, &link);
            }
            Stage::Local(registry) => {
                let registry = *registry;
                drop(state);
                let message = payload.into_message(call);
                let bytes = match (message.head.is_empty(), message.body.is_empty()) {
                    (_, true) => message.head.into(),
                    (true, false) => message.body,
                    (false, false) => [&message.head[..], &message.body].concat().into(),
                };
                let frame = Frame::read(Received { bytes, blobs: message.blobs });
                let from = ReplyTo::Local(Arc::clone(&self.calls));
                registry.accept(frame, PeerId::LOCAL, from);
            }
            Stage::Closed(_) => unreachable!("it was checked above"),
        }
        Ok(())
    }

    /// Sends the messages that wait over a new link.
    pub(crate) fn open(&self, link: &Arc<dyn Link>) {
        let mut state = self.state.lock();
        if let Stage::Opening(waiting) = &mut state.stage {
            for message in std::mem::take(waiting) {
                let _ = link.send(message);
            }
            state.stage = Stage::Linked(Arc::clone(link));
        }
    }

    /// Returns whether messages without an answer were sent, which may not have arrived.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        self.state.lock().unconfirmed
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Linked(_))
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Closed(_))
    }

    /// Returns whether the channel sends over this link.
    pub(crate) fn uses(&self, link: &Arc<dyn Link>) -> bool {
        matches!(&self.state.lock().stage, Stage::Linked(used) if Arc::ptr_eq(used, link))
    }

    /// Returns how many messages without an answer wait for the connection.
    pub(crate) fn waiting_letters(&self) -> u64 {
        match &self.state.lock().stage {
            Stage::Opening(waiting) => {
                waiting.iter().filter(|message| wire::is_letter(message)).count() as u64
            }
            _ => 0,
        }
    }

    /// Completes a call with its answer.
    pub(crate) fn complete(&self, call: CallId, answer: Result<Received, CallFailure>) {
        self.calls.complete(call, answer);
    }

    /// Closes the channel. Returns the calls that wait, in the order in which they were sent, or
    /// `None` if it was closed before.
    pub(crate) fn close(&self, reason: &ExitReason) -> Option<Vec<Pending>> {
        let mut state = self.state.lock();
        if matches!(state.stage, Stage::Closed(_)) {
            return None;
        }
        state.stage = Stage::Closed(reason.clone());
        Some(self.calls.take())
    }
}
