//! How calls find an actor that is started again elsewhere when it dies.

use std::collections::VecDeque;
use std::sync::Arc;

use fiber_core::ExitReason;
use parking_lot::Mutex;

use super::channel::Channel;
use super::deadlines::Unanswered;
use super::pending::Pending;
use super::wire::{ActorId, Payload, ProcessRef};

/// The way to an actor by its owner's word. All calls of this process to the actor share it, which
/// keeps their order.
pub(crate) struct Route {
    owner: ProcessRef,
    actor: ActorId,
    state: Mutex<State>,
}

enum State {
    /// Nobody has asked yet where it is.
    Unknown,
    /// The owner is asked for the incarnation after `after`; what is sent waits.
    Asking {
        after: u64,
        waiting: VecDeque<Call>,
    },
    At {
        channel: Arc<Channel>,
        incarnation: u64,
    },
    Gone(ExitReason),
}

type Call = (Payload, Option<Pending>);

/// What is to be done now: to ask the owner for the incarnation after this one.
pub(crate) struct Ask {
    pub(crate) after: u64,
}

/// What is to be done when a channel has closed.
pub(crate) struct Lost {
    /// The incarnation that was there.
    pub(crate) incarnation: u64,
    pub(crate) ask: Option<Ask>,
    /// What is to be sent again now.
    pub(crate) late: Vec<(Payload, Pending)>,
    /// What is not to be sent again.
    pub(crate) failed: Vec<Pending>,
}

impl Route {
    pub(crate) fn new(owner: ProcessRef, actor: ActorId) -> Arc<Route> {
        Arc::new(Route { owner, actor, state: Mutex::new(State::Unknown) })
    }

    /// The node that knows where the actor is.
    pub(crate) fn owner(&self) -> &ProcessRef {
        &self.owner
    }

    pub(crate) fn actor(&self) -> ActorId {
        self.actor
    }

    /// Sends a call, or keeps it until it is known where to.
    #[must_use]
    pub(crate) fn send(
        self: &Arc<Route>,
        payload: Payload,
        mut pending: Option<Pending>,
    ) -> Option<Ask> {
        if let Some(pending) = &mut pending {
            pending.route = Some(Arc::clone(self));
        }
        let mut state = self.state.lock();
        let (call, after) = match &mut *state {
            State::Unknown => ((payload, pending), 0),
            State::Asking { waiting, .. } => {
                waiting.push_back((payload, pending));
                return None;
            }
            // The lock is held meanwhile: what was sent first goes first.
            State::At { channel, incarnation } => match channel.send(payload, pending) {
                Ok(()) => return None,
                Err(refused) => ((refused.payload, refused.pending), *incarnation),
            },
            State::Gone(reason) => {
                let reason = reason.clone();
                drop(state);
                give_up(pending, &reason);
                return None;
            }
        };
        *state = State::Asking { after, waiting: VecDeque::from([call]) };
        Some(Ask { after })
    }

    /// Whether the actor may answer, now or after a restart.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(&*self.state.lock(), State::Gone(_))
    }

    /// Whether what is sent waits until it is known where to.
    pub(crate) fn is_looked_for(&self) -> bool {
        matches!(&*self.state.lock(), State::Asking { .. })
    }

    /// The incarnation that was asked for is at the other end of a channel.
    #[must_use]
    pub(crate) fn found(&self, channel: Arc<Channel>, incarnation: u64) -> Option<Ask> {
        let mut state = self.state.lock();
        let State::Asking { waiting, .. } = &mut *state else { return None };
        let mut waiting = std::mem::take(waiting);
        while let Some((payload, pending)) = waiting.pop_front() {
            if let Err(refused) = channel.send(payload, pending) {
                // It is gone again.
                waiting.push_front((refused.payload, refused.pending));
                *state = State::Asking { after: incarnation, waiting };
                return Some(Ask { after: incarnation });
            }
        }
        *state = State::At { channel, incarnation };
        None
    }

    /// There will be none any more.
    pub(crate) fn gone(&self, reason: &ExitReason) {
        let mut state = self.state.lock();
        let State::Asking { waiting, .. } = &mut *state else { return };
        let waiting = std::mem::take(waiting);
        *state = State::Gone(reason.clone());
        drop(state);
        waiting.into_iter().for_each(|(_, pending)| give_up(pending, reason));
    }

    /// The channel closed with these calls under way.
    pub(crate) fn lost(&self, channel: &Arc<Channel>, calls: Vec<Pending>) -> Lost {
        let (again, failed): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| call.again.is_some());
        let mut state = self.state.lock();
        let (incarnation, ask) = match &*state {
            State::At { channel: used, incarnation } if Arc::ptr_eq(used, channel) => {
                let after = *incarnation;
                *state = State::Asking { after, waiting: VecDeque::new() };
                (after, Some(Ask { after }))
            }
            State::Asking { after, .. } => (*after, None),
            State::At { incarnation, .. } => (incarnation.saturating_sub(1), None),
            State::Unknown | State::Gone(_) => (0, None),
        };
        let mut late = Vec::new();
        for call in again.into_iter().rev() {
            let payload = call.again.clone().expect("that is how they were chosen");
            match &mut *state {
                // Before what was sent later.
                State::Asking { waiting, .. } => waiting.push_front((payload, Some(call))),
                _ => late.push((payload, call)),
            }
        }
        late.reverse();
        Lost { incarnation, ask, late, failed }
    }
}

fn give_up(pending: Option<Pending>, reason: &ExitReason) {
    if let Some(pending) = pending {
        pending.tell(Err(Unanswered::Lost(reason.clone())));
    }
}
