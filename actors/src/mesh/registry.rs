//! What others can reach on this node: its actors and ports, and what it answers of the actors that
//! it owns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use fiber_core::{ExitReason, Failure, FailureKind, Result, codec};
use parking_lot::Mutex;

use super::inbox::{Delivery, Inbox, ReplyTo, Responder};
use super::owned::{Owned, Standing};
use super::port::{PeerId, Ports, Request, Requester};
use super::recent::Recent;
use super::wire::{self, ActorId, CallFailure, End, Frame, Place, Question};
use crate::endpoint::Endpoint;

/// How often to look whether an exported actor has ended: actix tells nobody.
const LOOK: Duration = Duration::from_millis(50);
/// The same while nobody asks, to close the inboxes of those that have ended.
const SWEEP: Duration = Duration::from_millis(500);
/// How long handles that a process sent to others before it was lost may take to arrive there.
const LATE: Duration = Duration::from_secs(5);
/// How many ended actors are remembered, so that late callers learn why they ended.
const REMEMBERED: usize = 1024;

/// All that is reached by a number of this node.
pub(crate) struct Registry {
    endpoint: &'static Endpoint,
    inboxes: DashMap<ActorId, Arc<Inbox>>,
    owned: DashMap<ActorId, Arc<Owned>>,
    /// Exported actors that have not ended.
    exported: Mutex<Vec<Exported>>,
    /// Ended actors, exported and owned, in the order of their ends. Older ones are forgotten.
    ended: Mutex<Recent<ActorId>>,
    ports: Ports,
    last: AtomicU64,
}

/// An exported actor: its inbox, and whether it lives.
struct Exported {
    id: ActorId,
    inbox: Arc<Inbox>,
    lives: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Registry {
    pub(crate) fn new(endpoint: &'static Endpoint) -> Registry {
        Registry {
            endpoint,
            inboxes: DashMap::new(),
            owned: DashMap::new(),
            exported: Mutex::default(),
            ended: Mutex::new(Recent::new(REMEMBERED)),
            ports: Ports::default(),
            last: AtomicU64::new(ActorId::HOSTED.0),
        }
    }

    /// What others can speak to beside actors.
    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// A peer is gone.
    pub(crate) fn lost(&'static self, peer: PeerId) {
        let held = self.ports.lost(peer);
        if !held.is_empty() {
            self.endpoint.spawn(move || async move {
                tokio::time::sleep(LATE).await;
                self.ports.forget_lost(held);
            });
        }
    }

    fn next_id(&self) -> ActorId {
        ActorId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Lets others reach what reads this inbox, for as long as it lives.
    pub(crate) fn export(
        &'static self,
        inbox: Arc<Inbox>,
        lives: impl Fn() -> bool + Send + Sync + 'static,
    ) -> ActorId {
        let id = self.next_id();
        self.inboxes.insert(id, Arc::clone(&inbox));
        let mut exported = self.exported.lock();
        exported.push(Exported { id, inbox, lives: Box::new(lives) });
        if exported.len() == 1 {
            self.endpoint.spawn(move || self.sweep());
        }
        id
    }

    /// Closes the inboxes of exported actors that have ended, until there are no others.
    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let mut exported = self.exported.lock();
            let ended: Vec<_> = exported.extract_if(.., |exported| !(exported.lives)()).collect();
            let is_last = exported.is_empty();
            drop(exported);
            for Exported { id, inbox, .. } in ended {
                inbox.close(&ExitReason::Normal);
                self.retire(id);
            }
            if is_last {
                return;
            }
        }
    }

    /// Remembers an actor that has ended for some time, for late callers.
    pub(crate) fn retire(&self, actor: ActorId) {
        let forgotten = self.ended.lock().push(actor);
        if let Some(forgotten) = forgotten {
            self.inboxes.remove(&forgotten);
            self.owned.remove(&forgotten);
        }
    }

    /// Lets others reach the actor that this process was started for.
    pub(crate) fn host(&self, inbox: Arc<Inbox>) {
        self.inboxes.insert(ActorId::HOSTED, inbox);
    }

    pub(crate) fn inbox(&self, actor: ActorId) -> Option<Arc<Inbox>> {
        self.inboxes.get(&actor).map(|inbox| Arc::clone(&inbox))
    }

    /// An actor that this node is going to start elsewhere.
    pub(crate) fn own(&self) -> Arc<Owned> {
        let owned = Owned::new(self.next_id());
        self.owned.insert(owned.id(), Arc::clone(&owned));
        owned
    }

    pub(crate) fn owned(&self, actor: ActorId) -> Option<Arc<Owned>> {
        self.owned.get(&actor).map(|owned| Arc::clone(&owned))
    }

    /// Acts on a frame.
    pub(crate) fn accept(&'static self, frame: Option<Frame>, from: ReplyTo) {
        match frame {
            Some(Frame::Call { call, actor, method, message }) => {
                let responder = Responder::new(from, call);
                match self.inboxes.get(&actor) {
                    Some(inbox) => inbox.push(Delivery { method, message, responder }),
                    None => responder.fail(&CallFailure::Stopped(wire::unknown())),
                }
            }
            Some(Frame::Port { call, port, body }) => {
                let requester = Requester::new(PeerId::HERE, Responder::new(from, call));
                self.ports.deliver(port, Request { body, requester, link: None });
            }
            Some(Frame::Ask { call, question }) => {
                let responder = Responder::new(from, call);
                self.endpoint.spawn(move || async move {
                    match self.answer(question).await {
                        Ok(value) => {
                            let mut frame = wire::answer_head();
                            frame.extend_from_slice(&value);
                            responder.answer(frame);
                        }
                        Err(error) => responder
                            .fail(&CallFailure::Failed(Failure::new(FailureKind::Result, error))),
                    }
                });
            }
            Some(Frame::Beat) => {}
            Some(Frame::Answer { .. } | Frame::Failed { .. }) | None => {
                tracing::error!("a frame of another runtime was ignored, for it makes no sense");
            }
        }
    }

    /// Answers a question that was put to this node.
    async fn answer(&self, question: Question) -> Result<Vec<u8>> {
        match question {
            Question::Where { actor, after } => {
                codec::encode(&self.whereabouts(actor, after).await)
            }
            Question::Incarnation { actor } => {
                codec::encode(&self.owned(actor).map_or(1, |owned| owned.current()))
            }
            Question::Fate { actor, incarnation } => {
                codec::encode(&self.fate(actor, incarnation).await)
            }
            Question::Ended { actor } => codec::encode(&self.ended(actor).await),
            Question::Arrived => codec::encode(&()),
        }
    }

    async fn whereabouts(&self, actor: ActorId, after: u64) -> Place {
        let Some(owned) = self.owned(actor) else { return Place::Gone(wire::unknown()) };
        let there = |standing: &Standing| {
            standing.gone.is_some() || (standing.incarnation > after && standing.up.is_some())
        };
        let standing = owned.when(there).await;
        match (standing.gone, standing.up) {
            (None, Some(runtime)) => Place::At { runtime, incarnation: standing.incarnation },
            (reason, _) => Place::Gone(reason.unwrap_or_else(wire::unknown)),
        }
    }

    async fn fate(&self, actor: ActorId, incarnation: u64) -> End {
        let Some(owned) = self.owned(actor) else {
            return End { reason: wire::unknown(), incarnation, gone: true };
        };
        let told = |standing: &Standing| {
            standing.gone.is_some()
                || standing.ended.as_ref().is_some_and(|(ended, _)| *ended >= incarnation)
        };
        let standing = owned.when(told).await;
        let gone = standing.gone.is_some();
        match standing.ended {
            Some((ended, reason)) if ended >= incarnation => {
                End { reason, incarnation: ended, gone }
            }
            _ => End { reason: standing.gone.unwrap_or_else(wire::unknown), incarnation, gone },
        }
    }

    async fn ended(&self, actor: ActorId) -> ExitReason {
        if let Some(owned) = self.owned(actor) {
            let standing = owned.when(|standing| standing.gone.is_some()).await;
            return standing.gone.unwrap_or_else(wire::unknown);
        }
        let Some(inbox) = self.inbox(actor) else { return wire::unknown() };
        while inbox.is_open() {
            tokio::time::sleep(LOOK).await;
        }
        ExitReason::Normal
    }
}
