//! How calls find an actor that is started again elsewhere when it dies.

use std::collections::VecDeque;
use std::sync::Arc;

use fiber_core::{Error, ExitReason, codec};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::channel::{Channel, Pending, Unanswered};
use super::question::{End, Place, Question};
use super::wire::{ActorId, NodeRef, Parcel};
use crate::node::Node;

/// The way to an actor by its owner's word. All calls of this process to the actor share it, which keeps their order.
pub(super) struct Route {
    owner: NodeRef,
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

type Call = (Parcel, Option<Pending>);

impl Route {
    pub(super) fn new(owner: NodeRef, actor: ActorId) -> Arc<Route> {
        Arc::new(Route { owner, actor, state: Mutex::new(State::Unknown) })
    }

    /// Sends a call, as soon as it is known where to.
    pub(super) fn send(self: &Arc<Self>, node: &'static Node, parcel: Parcel, mut pending: Option<Pending>) {
        if let Some(pending) = &mut pending {
            pending.route = Some(Arc::clone(self));
        }
        let mut state = self.state.lock();
        let (call, after) = match &mut *state {
            State::Unknown => ((parcel, pending), 0),
            State::Asking { waiting, .. } => return waiting.push_back((parcel, pending)),
            // The lock is held meanwhile: what was sent first goes first.
            State::At { channel, incarnation } => match channel.send(parcel, pending) {
                Ok(()) => return,
                Err(refused) => ((refused.parcel, refused.pending), *incarnation),
            },
            State::Gone(reason) => {
                let reason = reason.clone();
                drop(state);
                return give_up(pending, &reason);
            }
        };
        *state = State::Asking { after, waiting: VecDeque::from([call]) };
        drop(state);
        self.ask(node, after);
    }

    /// Whether the actor may answer, now or after a restart.
    pub(super) fn is_open(&self) -> bool {
        !matches!(&*self.state.lock(), State::Gone(_))
    }

    /// Whether what is sent waits until it is known where to.
    pub(super) fn is_looked_for(&self) -> bool {
        matches!(&*self.state.lock(), State::Asking { .. })
    }

    fn ask(self: &Arc<Self>, node: &'static Node, after: u64) {
        let route = Arc::clone(self);
        node.spawn(move || async move {
            let question = Question::Where { actor: route.actor, after };
            let place = ask::<Place>(node, &route.owner, question).await.unwrap_or_else(Place::Gone);
            route.found(node, place);
        });
    }

    fn found(self: &Arc<Self>, node: &'static Node, place: Place) {
        let mut state = self.state.lock();
        let State::Asking { waiting, .. } = &mut *state else { return };
        let mut waiting = std::mem::take(waiting);
        match place {
            Place::At { node: home, incarnation } => {
                let channel = node.mesh().channel(node, &home);
                while let Some((parcel, pending)) = waiting.pop_front() {
                    if let Err(refused) = channel.send(parcel, pending) {
                        // It is gone again.
                        waiting.push_front((refused.parcel, refused.pending));
                        *state = State::Asking { after: incarnation, waiting };
                        drop(state);
                        return self.ask(node, incarnation);
                    }
                }
                *state = State::At { channel, incarnation };
            }
            Place::Gone(reason) => {
                *state = State::Gone(reason.clone());
                drop(state);
                waiting.into_iter().for_each(|(_, pending)| give_up(pending, &reason));
            }
        }
    }

    /// The channel closed with these calls under way.
    pub(super) fn lost(self: &Arc<Self>, channel: &Arc<Channel>, calls: Vec<Pending>, reason: &ExitReason) {
        let node = channel.node();
        let (again, failed): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.again.is_some());
        let mut state = self.state.lock();
        let (lost, unasked) = match &*state {
            State::At { channel: used, incarnation } if Arc::ptr_eq(used, channel) => {
                let incarnation = *incarnation;
                *state = State::Asking { after: incarnation, waiting: VecDeque::new() };
                (incarnation, true)
            }
            State::Asking { after, .. } => (*after, false),
            State::At { incarnation, .. } => (incarnation.saturating_sub(1), false),
            State::Unknown | State::Gone(_) => (0, false),
        };
        let mut late = Vec::new();
        for mut call in again.into_iter().rev() {
            let parcel = call.again.clone().expect("that is how they were chosen");
            call.route = Some(Arc::clone(self));
            match &mut *state {
                // Before what was sent later.
                State::Asking { waiting, .. } => waiting.push_front((parcel, Some(call))),
                _ => late.push((parcel, call)),
            }
        }
        drop(state);
        if unasked {
            self.ask(node, lost);
        }
        late.into_iter().rev().for_each(|(parcel, call)| self.send(node, parcel, Some(call)));
        if failed.is_empty() {
            return;
        }
        let (route, reason) = (Arc::clone(self), reason.clone());
        node.spawn(move || async move {
            // The owner knows more than that a link broke.
            let question = Question::Fate { actor: route.actor, incarnation: lost };
            let reason = match ask::<End>(node, &route.owner, question).await {
                Ok(end) => end.reason,
                Err(_) => reason,
            };
            failed.into_iter().for_each(|call| call.tell(Err(Unanswered::Lost(reason.clone()))));
        });
    }
}

fn give_up(pending: Option<Pending>, reason: &ExitReason) {
    if let Some(pending) = pending {
        pending.tell(Err(Unanswered::Lost(reason.clone())));
    }
}

/// Asks a node, and waits for the answer.
///
/// # Errors
/// Why the node can't be asked (any more).
pub(super) async fn ask<T: DeserializeOwned>(
    node: &'static Node,
    whom: &NodeRef,
    question: Question,
) -> Result<T, ExitReason> {
    let (sender, answer) = tokio::sync::oneshot::channel();
    let pending = Pending { waiter: super::deadlines::Waiter::Patient(sender), route: None, again: None, load: None };
    let channel = node.mesh().channel(node, whom);
    if let Err(refused) = channel.send(Parcel::ask(&question), Some(pending)) {
        return Err(refused.reason);
    }
    let broken = |problem: String| ExitReason::LinkLost(problem);
    match answer.await {
        Ok(Ok(value)) => codec::decode(&value).map_err(|error: Error| broken(error.to_string())),
        Ok(Err(Unanswered::Lost(reason))) => Err(reason),
        Ok(Err(other)) => Err(broken(format!("its owner did not answer: {other:?}"))),
        Err(_) => Err(broken("its owner did not answer".into())),
    }
}
