//! The actors and ports of this process that others can reach, and answers to queries about the
//! actors that it owns.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use fiber_core::{ExitReason, FailureKind, ProcessId, Result, deadline_after};
use fiber_values::codec;
use parking_lot::Mutex;

use super::dead_letters::DeadLetters;
use super::inbox::{Inbox, IncomingMessage, ReplyTo, Responder};
use super::owned::{ActorStatus, OwnedActor};
use super::port::{PeerId, Ports, Request, Requester};
use super::waits::Waits;
use super::wire::{self, ActorId, ActorLocation, CallFailure, Ends, Frame, Query};
use crate::endpoint::Endpoint;

/// The interval between two checks whether an exported actor has ended, while a caller waits for
/// that: actix does not notify.
const END_CHECK: Duration = Duration::from_millis(50);
/// The interval between two checks of all exported actors, to close the inboxes of those that have
/// ended.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// The time in ms that handles which a lost process sent to others may take to arrive.
static TRANSIT_TIME: AtomicU64 = AtomicU64::new(5000);
/// The number of ended actors whose exit reasons are remembered, for late callers.
const ENDED_ACTORS: usize = 1024;

pub(super) fn transit_time() -> Duration {
    Duration::from_millis(TRANSIT_TIME.load(Ordering::Relaxed))
}

/// Shortens tests that wait until no handle can be on its way any more.
#[doc(hidden)]
pub fn set_transit_time(time: Duration) {
    TRANSIT_TIME.store(time.as_millis() as u64, Ordering::Relaxed);
}

/// Everything in this process that has a number by which others reach it.
pub struct Registry {
    endpoint: &'static Endpoint,
    inboxes: DashMap<ActorId, Arc<Inbox>>,
    /// The owner of the managed actors that run in this process.
    owner: OnceLock<ProcessId>,
    /// The actors that this process owns, and exported ones that a supervisor restarts.
    owned: DashMap<ActorId, Arc<OwnedActor>>,
    /// Exported actors that have not ended.
    exported: Mutex<BTreeMap<ActorId, Exported>>,
    /// Ended actors, exported and owned, in the order of their ends.
    ended: Mutex<VecDeque<ActorId>>,
    ports: Ports,
    dead_letters: Arc<DeadLetters>,
    waits: Waits,
    last: AtomicU64,
}

/// An exported actor, and why it has ended, if it has.
struct Exported {
    inbox: Arc<Inbox>,
    end: Box<dyn Fn() -> Option<ExitReason> + Send + Sync>,
}

impl Registry {
    pub(crate) fn new(endpoint: &'static Endpoint) -> Registry {
        Registry {
            endpoint,
            inboxes: DashMap::new(),
            owner: OnceLock::new(),
            owned: DashMap::new(),
            exported: Mutex::default(),
            ended: Mutex::default(),
            ports: Ports::default(),
            dead_letters: DeadLetters::new(endpoint),
            waits: Waits::default(),
            last: AtomicU64::new(ActorId::LATER.0),
        }
    }

    /// Returns the ports of this process.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Returns the messages that this process could not deliver.
    pub fn dead_letters(&self) -> &Arc<DeadLetters> {
        &self.dead_letters
    }

    /// Returns the waits of this process.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Handles the loss of a peer.
    pub(crate) fn lost(&'static self, peer: PeerId) {
        let held = self.ports.lost(peer);
        if !held.is_empty() {
            self.endpoint.spawn(move || async move {
                tokio::time::sleep(transit_time()).await;
                self.ports.forget_lost(held);
            });
        }
    }

    fn next_id(&self) -> ActorId {
        ActorId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Makes the reader of an inbox reachable, until `end` returns why it has ended.
    pub fn export(
        &'static self,
        inbox: Arc<Inbox>,
        end: impl Fn() -> Option<ExitReason> + Send + Sync + 'static,
    ) -> ActorId {
        let id = self.next_id();
        inbox.set_reachable(id, &self.dead_letters);
        self.inboxes.insert(id, Arc::clone(&inbox));
        let mut exported = self.exported.lock();
        exported.insert(id, Exported { inbox, end: Box::new(end) });
        if exported.len() == 1 {
            self.endpoint.spawn(move || self.sweep());
        }
        id
    }

    /// Keeps the ends of an exported actor that a supervisor restarts, for its watchers.
    pub fn keep_ends(&self, actor: ActorId, name: &str) -> Arc<OwnedActor> {
        let ends = OwnedActor::new(actor, name, None);
        self.owned.insert(actor, Arc::clone(&ends));
        ends
    }

    /// Closes the inboxes of exported actors that have ended, until none is left.
    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let mut exported = self.exported.lock();
            let ended = exported.iter().filter_map(|(id, actor)| Some((*id, (actor.end)()?)));
            let ended: Vec<_> = ended.collect();
            let removed: Vec<_> = ended.iter().filter_map(|(id, _)| exported.remove(id)).collect();
            let is_last = exported.is_empty();
            drop(exported);
            for ((id, reason), Exported { inbox, .. }) in ended.into_iter().zip(removed) {
                inbox.close(&reason);
                self.retire(id);
            }
            if is_last {
                return;
            }
        }
    }

    /// Remembers an actor that has ended for some time, for late callers.
    pub fn retire(&self, actor: ActorId) {
        let mut ended = self.ended.lock();
        if ended.contains(&actor) {
            return;
        }
        ended.push_back(actor);
        if ended.len() > ENDED_ACTORS
            && let Some(forgotten) = ended.pop_front()
        {
            drop(ended);
            self.inboxes.remove(&forgotten);
            self.owned.remove(&forgotten);
        }
    }

    /// Makes an actor of `owner`, this process's parent, reachable that runs in this process.
    pub fn host(&self, inbox: Arc<Inbox>, owner: ProcessId, actor: ActorId) {
        let _ = self.owner.set(owner);
        inbox.set_reachable(actor.hosted(), &self.dead_letters);
        self.inboxes.insert(actor.hosted(), inbox);
    }

    /// Returns the messages for an actor that `home` owns or has exported, if it runs in this
    /// process.
    pub(crate) fn inbox_here(&self, home: ProcessId, actor: ActorId) -> Option<Arc<Inbox>> {
        let is_here = match actor.at_owner() {
            Some(_) => self.owner.get() == Some(&home),
            None => home == self.endpoint.id,
        };
        self.inbox(actor).filter(|_| is_here)
    }

    pub fn inbox(&self, actor: ActorId) -> Option<Arc<Inbox>> {
        self.inboxes.get(&actor).map(|inbox| Arc::clone(&inbox))
    }

    /// Adds an actor that this process is going to start in another one.
    pub fn own(&self, name: &str, places: Option<NonZeroU32>) -> Arc<OwnedActor> {
        let owned = OwnedActor::new(self.next_id(), name, places);
        self.owned.insert(owned.id, Arc::clone(&owned));
        owned
    }

    pub fn owned(&self, actor: ActorId) -> Option<Arc<OwnedActor>> {
        self.owned.get(&actor).map(|owned| Arc::clone(&owned))
    }

    /// Handles a frame of a peer.
    pub(crate) fn accept(&'static self, frame: Option<Frame>, peer: PeerId, from: ReplyTo) {
        match frame {
            Some(Frame::Call { call, actor, method, terms, message }) => {
                let responder = Responder::new(from, call);
                match self.inboxes.get(&actor) {
                    Some(inbox) => {
                        let now = Instant::now();
                        let deadline = terms.time_left.map(deadline_after);
                        let urgent = terms.urgent;
                        let message =
                            IncomingMessage { method, message, responder, deadline, urgent };
                        inbox.push(message, now);
                    }
                    None if responder.expects_answer() => {
                        responder.fail(&CallFailure::Stopped(wire::unknown()));
                    }
                    None => {
                        let name = format!("actor {}", actor.0);
                        self.dead_letters.note(&name, 1, wire::unknown());
                    }
                }
            }
            Some(Frame::Port { call, port, body }) => {
                let link = match &from {
                    ReplyTo::Link(link) => Some(Arc::clone(link)),
                    ReplyTo::Local(_) => None,
                };
                let requester = Requester::new(peer, Responder::new(from, call));
                self.ports.deliver(port, Request { body, requester, link });
            }
            Some(Frame::Query { call, query }) => {
                let requester = Requester::new(peer, Responder::new(from, call));
                self.endpoint.spawn(move || async move {
                    match self.answer(query).await {
                        Ok(value) => requester.answer_bytes(&value),
                        Err(error) => requester.fail(FailureKind::Result, &error),
                    }
                });
            }
            Some(Frame::Heartbeat) => {}
            Some(Frame::Answer { .. } | Frame::Failed { .. }) | None => {
                tracing::error!("an invalid frame of another process was ignored");
            }
        }
    }

    /// Answers a query.
    async fn answer(&self, query: Query) -> Result<Vec<u8>> {
        match query {
            Query::Locate { actor, after } => codec::encode(&self.locate(actor, after).await),
            Query::EndCount { actor } => {
                codec::encode(&self.owned(actor).map_or(0, |owned| owned.end_count()))
            }
            Query::Ends { actor, after } => codec::encode(&self.ends(actor, after).await),
            Query::IncarnationEnd { actor, incarnation } => {
                codec::encode(&self.incarnation_end(actor, incarnation).await)
            }
            Query::ActorEnd { actor } => codec::encode(&self.actor_end(actor).await),
            Query::Wait { actor } => codec::encode(&self.wait_of(actor)),
            Query::Flush | Query::Resume => codec::encode(&()),
        }
    }

    /// Returns where an actor runs that this process owns, once it is a later incarnation than
    /// `after`.
    pub(crate) async fn locate(&self, actor: ActorId, after: u64) -> ActorLocation {
        let Some(owned) = self.owned(actor) else { return ActorLocation::Gone(wire::unknown()) };
        let is_known = |status: &ActorStatus| {
            status.gone.is_some() || (status.incarnation > after && status.process.is_some())
        };
        let status = owned.when(is_known).await;
        match (status.gone, status.process) {
            (None, Some(process)) => ActorLocation::At { process, incarnation: status.incarnation },
            (reason, _) => ActorLocation::Gone(reason.unwrap_or_else(wire::unknown)),
        }
    }

    async fn ends(&self, actor: ActorId, after: u64) -> Ends {
        match self.owned(actor) {
            Some(owned) => owned.ends(after).await,
            None => {
                let gone = Some(self.actor_end(actor).await);
                Ends { count: after, reasons: Vec::new(), gone }
            }
        }
    }

    async fn incarnation_end(&self, actor: ActorId, incarnation: u64) -> ExitReason {
        let Some(owned) = self.owned(actor) else { return wire::unknown() };
        let has_ended = |status: &ActorStatus| {
            status.gone.is_some()
                || status.ended.as_ref().is_some_and(|(ended, _)| *ended >= incarnation)
        };
        let status = owned.when(has_ended).await;
        match status.ended {
            Some((ended, reason)) if ended >= incarnation => reason,
            _ => status.gone.unwrap_or_else(wire::unknown),
        }
    }

    /// Waits until an actor that this process owns or has exported has ended for good.
    pub(crate) async fn actor_end(&self, actor: ActorId) -> ExitReason {
        if let Some(owned) = self.owned(actor) {
            let status = owned.when(|status| status.gone.is_some()).await;
            return status.gone.unwrap_or_else(wire::unknown);
        }
        loop {
            if let Some(reason) = self.end_of(actor) {
                return reason;
            }
            tokio::time::sleep(END_CHECK).await;
        }
    }

    /// Returns whether an actor that this process owns or has exported has not ended for good.
    pub(crate) fn is_there(&self, actor: ActorId) -> bool {
        match self.owned(actor) {
            Some(owned) => !owned.is_gone(),
            None => self.end_of(actor).is_none(),
        }
    }

    /// Returns why an actor of this process has ended, if it has.
    fn end_of(&self, actor: ActorId) -> Option<ExitReason> {
        let Some(inbox) = self.inbox(actor) else { return Some(wire::unknown()) };
        // The actor that this process was started for is not exported.
        inbox.closed().or_else(|| (self.exported.lock().get(&actor)?.end)())
    }
}
