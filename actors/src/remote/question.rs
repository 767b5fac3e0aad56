//! What nodes ask each other about their actors.

use std::time::Duration;

use fiber_core::{Error, ExitReason, Result, codec};
use serde::{Deserialize, Serialize};

use super::owned::Standing;
use super::wire::{ActorId, NodeRef};
use crate::node::Node;

/// How often to look whether an exported actor has ended: actix tells nobody.
const LOOK: Duration = Duration::from_millis(50);

/// A question to a node. It is answered when there is something to tell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// Where is the incarnation after this one of an actor that you own? Answered by a [`Place`].
    Where { actor: ActorId, after: u64 },
    /// Which incarnation is the current one, or the next? Answered by a number.
    Incarnation { actor: ActorId },
    /// How did this incarnation end? Answered by an [`End`].
    Fate { actor: ActorId, incarnation: u64 },
    /// How did an actor end for good? Answered by an [`ExitReason`].
    Ended { actor: ActorId },
    /// Has all arrived that was sent before this? Answered when it has.
    Arrived,
}

/// Where an owned actor is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Place {
    At {
        node: NodeRef,
        incarnation: u64,
    },
    /// Nowhere, and it will not be started again.
    Gone(ExitReason),
}

/// How an incarnation ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) reason: ExitReason,
    /// The incarnation that was the last to end.
    pub(super) incarnation: u64,
    pub(super) gone: bool,
}

/// Answers a question that was put to this node.
pub(super) async fn answer(node: &'static Node, question: Question) -> Result<Vec<u8>> {
    match question {
        Question::Where { actor, after } => codec::encode(&whereabouts(node, actor, after).await),
        Question::Incarnation { actor } => codec::encode(&node.mesh().owned(actor).map_or(1, |owned| owned.current())),
        Question::Fate { actor, incarnation } => codec::encode(&fate(node, actor, incarnation).await),
        Question::Ended { actor } => codec::encode(&ended(node, actor).await),
        Question::Arrived => codec::encode(&()),
    }
}

async fn whereabouts(node: &Node, actor: ActorId, after: u64) -> Place {
    let Some(owned) = node.mesh().owned(actor) else { return Place::Gone(unknown()) };
    let there =
        |standing: &Standing| standing.gone.is_some() || (standing.incarnation > after && standing.up.is_some());
    let standing = owned.when(there).await;
    match (standing.gone, standing.up) {
        (None, Some(node)) => Place::At { node, incarnation: standing.incarnation },
        (reason, _) => Place::Gone(reason.unwrap_or_else(unknown)),
    }
}

async fn fate(node: &Node, actor: ActorId, incarnation: u64) -> End {
    let Some(owned) = node.mesh().owned(actor) else {
        return End { reason: unknown(), incarnation, gone: true };
    };
    let told = |standing: &Standing| {
        standing.gone.is_some() || standing.ended.as_ref().is_some_and(|(ended, _)| *ended >= incarnation)
    };
    let standing = owned.when(told).await;
    let gone = standing.gone.is_some();
    match standing.ended {
        Some((ended, reason)) if ended >= incarnation => End { reason, incarnation: ended, gone },
        _ => End { reason: standing.gone.unwrap_or_else(unknown), incarnation, gone },
    }
}

async fn ended(node: &Node, actor: ActorId) -> ExitReason {
    if let Some(owned) = node.mesh().owned(actor) {
        let standing = owned.when(|standing| standing.gone.is_some()).await;
        return standing.gone.unwrap_or_else(unknown);
    }
    let Some(inbox) = node.mesh().inbox(actor) else { return unknown() };
    while inbox.is_open() {
        tokio::time::sleep(LOOK).await;
    }
    ExitReason::Normal
}

/// Why an actor can't be reached of which nothing is known.
pub(super) fn unknown() -> ExitReason {
    ExitReason::NotStarted("there is no such actor in its process (any more)".into())
}

/// What a caller is told of an actor that it can't reach.
pub(super) fn stopped(name: &str, reason: ExitReason) -> Error {
    Error::ActorStopped { name: name.into(), reason }
}
