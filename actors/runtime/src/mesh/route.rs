//! The way of calls to an actor that restarts in other processes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use fiber_core::ExitReason;
use parking_lot::Mutex;

use super::channel::Channel;
use super::dead_letters::DeadLetters;
use super::deadlines::Unanswered;
use super::pending::Pending;
use super::window::Window;
use super::wire::{ActorId, Payload, ProcessRef};

/// The way to a managed actor. All calls of this process to the actor share it, which keeps their
/// order.
pub struct Route {
    /// The process that knows where the actor is.
    pub(super) owner: ProcessRef,
    /// The number of the actor in its owner.
    pub(super) actor: ActorId,
    /// The actor's name.
    name: Arc<str>,
    dead_letters: Arc<DeadLetters>,
    state: Mutex<RouteState>,
    /// The places in the actor's mailbox for calls of this process, from the first one that has
    /// taken one.
    pub(super) window: OnceLock<Window>,
}

enum RouteState {
    /// The actor was not used yet, or its owner could not be reached: the next call looks for the
    /// incarnation after `after`.
    Unknown {
        after: u64,
    },
    /// The owner was asked for the incarnation after `after`. Calls wait.
    Locating {
        after: u64,
        waiting: VecDeque<WaitingCall>,
    },
    At {
        channel: Arc<Channel>,
        incarnation: u64,
    },
    Gone(ExitReason),
}

type WaitingCall = (Payload, Option<Pending>);

/// A request of the route: to ask the owner for the incarnation after this one.
pub(crate) struct Lookup {
    pub(crate) after: u64,
}

/// The consequences of a closed channel.
pub(crate) struct LostCalls {
    /// The incarnation that was lost.
    pub(crate) incarnation: u64,
    pub(crate) lookup: Option<Lookup>,
    /// Calls that are to be sent again now.
    pub(crate) resend: Vec<(Payload, Pending)>,
    /// Calls that are not sent again.
    pub(crate) failed: Vec<Pending>,
}

impl Route {
    /// Returns a route that asks `owner` for the actor's process at the first call.
    pub(crate) fn new(
        owner: ProcessRef,
        actor: ActorId,
        name: Arc<str>,
        dead_letters: Arc<DeadLetters>,
    ) -> Arc<Route> {
        let state = Mutex::new(RouteState::Unknown { after: 0 });
        Arc::new(Route { owner, actor, name, dead_letters, state, window: OnceLock::new() })
    }

    /// Sends a call, or keeps it until the actor is found.
    #[must_use]
    pub(crate) fn send(
        self: &Arc<Route>,
        payload: Payload,
        mut pending: Option<Pending>,
    ) -> Option<Lookup> {
        if let Some(pending) = &mut pending {
            pending.route = Some(Arc::clone(self));
        }
        let mut state = self.state.lock();
        let (call, after) = match &mut *state {
            RouteState::Unknown { after } => ((payload, pending), *after),
            RouteState::Locating { waiting, .. } => {
                waiting.push_back((payload, pending));
                return None;
            }
            // The route stays locked until the call is sent, which keeps the order of calls.
            RouteState::At { channel, incarnation } => match channel.send(payload, pending) {
                Ok(()) => return None,
                Err(refused) => ((refused.payload, refused.pending), *incarnation),
            },
            RouteState::Gone(reason) => {
                let reason = reason.clone();
                drop(state);
                self.fail(pending, &reason);
                return None;
            }
        };
        *state = RouteState::Locating { after, waiting: VecDeque::from([call]) };
        Some(Lookup { after })
    }

    /// Returns whether the actor may answer, now or after a restart.
    pub fn is_open(&self) -> bool {
        !matches!(&*self.state.lock(), RouteState::Gone(_))
    }

    /// Returns whether calls wait until the actor is found.
    pub(crate) fn is_locating(&self) -> bool {
        matches!(&*self.state.lock(), RouteState::Locating { .. })
    }

    /// Sends the calls that wait to the incarnation that was found.
    #[must_use]
    pub(crate) fn found(&self, channel: Arc<Channel>, incarnation: u64) -> Option<Lookup> {
        let mut state = self.state.lock();
        let RouteState::Locating { waiting, .. } = &mut *state else { return None };
        let mut waiting = std::mem::take(waiting);
        while let Some((payload, pending)) = waiting.pop_front() {
            if let Err(refused) = channel.send(payload, pending) {
                // That incarnation is gone, too.
                waiting.push_front((refused.payload, refused.pending));
                *state = RouteState::Locating { after: incarnation, waiting };
                return Some(Lookup { after: incarnation });
            }
        }
        *state = RouteState::At { channel, incarnation };
        None
    }

    /// Fails the calls that wait: the actor will not be restarted.
    pub(crate) fn gone(&self, reason: &ExitReason) {
        self.fail_waiting(reason, |_| RouteState::Gone(reason.clone()));
    }

    /// Fails the calls that wait: the owner can't be reached. It may live, so that the next call
    /// asks it again.
    pub(crate) fn unreachable(&self, reason: &ExitReason) {
        self.fail_waiting(reason, |after| RouteState::Unknown { after });
    }

    fn fail_waiting(&self, reason: &ExitReason, next: impl FnOnce(u64) -> RouteState) {
        let mut state = self.state.lock();
        let RouteState::Locating { after, waiting } = &mut *state else { return };
        let (after, waiting) = (*after, std::mem::take(waiting));
        *state = next(after);
        drop(state);
        waiting.into_iter().for_each(|(_, pending)| self.fail(pending, reason));
    }

    /// Handles the loss of a channel with these pending calls.
    pub(crate) fn lost(&self, channel: &Arc<Channel>, calls: Vec<Pending>) -> LostCalls {
        let (resent, failed): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| call.resend.is_some());
        let mut state = self.state.lock();
        let (incarnation, lookup) = match &*state {
            RouteState::At { channel: used, incarnation } if Arc::ptr_eq(used, channel) => {
                let after = *incarnation;
                *state = RouteState::Locating { after, waiting: VecDeque::new() };
                (after, Some(Lookup { after }))
            }
            RouteState::Locating { after, .. } => (*after, None),
            RouteState::At { incarnation, .. } => (incarnation.saturating_sub(1), None),
            RouteState::Unknown { .. } | RouteState::Gone(_) => (0, None),
        };
        let mut resend = Vec::new();
        for call in resent.into_iter().rev() {
            let payload = call.resend.clone().expect("it was chosen by this field");
            match &mut *state {
                // Resent calls go before later ones.
                RouteState::Locating { waiting, .. } => waiting.push_front((payload, Some(call))),
                _ => resend.push((payload, call)),
            }
        }
        resend.reverse();
        LostCalls { incarnation, lookup, resend, failed }
    }

    /// Fails a call. A message without an answer is a dead letter.
    fn fail(&self, pending: Option<Pending>, reason: &ExitReason) {
        match pending {
            Some(pending) => pending.complete(Err(Unanswered::Lost(reason.clone()))),
            None => self.dead_letters.note(&self.name, 1, reason),
        }
    }
}
