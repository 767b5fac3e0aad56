//! Connections between the processes of a session, and the frames that they carry.
//!
//! - [`Mesh`] has a [`Channel`] for each process that this one talks to, opened on first use and
//!   used by both sides.
//! - [`Registry`] has an [`Inbox`] for each actor and a [`Port`] for each shared object of this
//!   process that others can reach.
//! - A managed actor is reached through its owner, which knows the process of the actor's current
//!   incarnation: a [`Route`] asks the owner once, and again after each death.
//! - A call is one frame. Its caller gets an answer, a failure, or the reason why no answer comes.

mod alarm;
mod channel;
mod deadlines;
mod holders;
mod inbox;
mod owned;
mod pending;
mod port;
mod recent;
mod registry;
mod route;
mod settle;
mod wire;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use dashmap::DashMap;
use fiber_core::{Error, ExitReason, ProcessId, codec};
use fiber_transport::{Connection, Link, Peer, Role};
use serde::de::DeserializeOwned;

pub(crate) use self::alarm::Alarm;
pub(crate) use self::channel::Channel;
pub(crate) use self::deadlines::{Answer, Deadlines, Unanswered, Waiter};
pub(crate) use self::holders::{Change, Token};
pub(crate) use self::inbox::{Delivery, Inbox, Responder};
pub(crate) use self::owned::Owned;
pub(crate) use self::pending::{Load, Pending};
pub(crate) use self::port::{PeerId, Port, Request, Requester, push, push_head};
pub(crate) use self::registry::Registry;
pub(crate) use self::route::Route;
pub(crate) use self::settle::settle;
pub(crate) use self::wire::{
    ActorId, CallFailure, End, PORT_HEAD, Payload, PortId, ProcessRef, Question, answer_head,
    begin_port, port_head,
};

use self::inbox::ReplyTo;
use self::route::{Ask, Lost};
use self::wire::{Frame, Place};
use crate::endpoint::{
    Endpoint, HeartbeatMonitor, MESH, connect_to, message_limit, send_heartbeats,
};

/// How many routes there are at least before those that nothing needs are looked for.
const ROUTES: usize = 64;

/// The node that owns an actor, and the actor.
type RouteId = (ProcessId, ActorId);

/// The other nodes, and what they can reach here.
pub(crate) struct Mesh {
    endpoint: &'static Endpoint,
    registry: Registry,
    channels: DashMap<ProcessId, Arc<Channel>>,
    here: OnceLock<Arc<Channel>>,
    /// Those that an address or a call of this process needs, and some that none needs any more.
    routes: DashMap<RouteId, Weak<Route>>,
    /// How many routes there may be before the others are removed.
    most_routes: AtomicUsize,
    deadlines: Deadlines,
    /// Called after the loss of each connected process.
    after_loss: OnceLock<fn(ProcessId)>,
}

impl Mesh {
    pub(crate) fn new(endpoint: &'static Endpoint) -> Mesh {
        Mesh {
            endpoint,
            registry: Registry::new(endpoint),
            channels: DashMap::new(),
            here: OnceLock::new(),
            routes: DashMap::new(),
            most_routes: AtomicUsize::new(ROUTES),
            deadlines: Deadlines::new(endpoint),
            after_loss: OnceLock::new(),
        }
    }

    /// Has `call` called after the loss of each connected process. The first `call` stays.
    pub(crate) fn after_loss(&self, call: fn(ProcessId)) {
        self.after_loss.get_or_init(|| call);
    }

    /// What they can reach here.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// The way to an owned actor, which all addresses and calls of this process share.
    pub(crate) fn route(&self, owner: &ProcessRef, actor: ActorId) -> Arc<Route> {
        if self.routes.len() >= self.most_routes.load(Ordering::Relaxed) {
            self.routes.retain(|_, route| route.strong_count() > 0);
            self.most_routes.store(ROUTES.max(2 * self.routes.len()), Ordering::Relaxed);
        }
        let mut place = self.routes.entry((owner.id, actor)).or_default();
        place.upgrade().unwrap_or_else(|| {
            let route = Route::new(owner.clone(), actor);
            *place = Arc::downgrade(&route);
            route
        })
    }

    /// All ways to owned actors.
    pub(crate) fn routes(&self) -> Vec<Arc<Route>> {
        self.routes.iter().filter_map(|route| route.upgrade()).collect()
    }

    /// All ways to other nodes.
    pub(crate) fn channels(&self) -> Vec<Arc<Channel>> {
        self.channels.iter().map(|channel| Arc::clone(&channel)).collect()
    }

    /// The way to a node, which is being opened if there is none.
    pub(crate) fn channel(&'static self, to: &ProcessRef) -> Arc<Channel> {
        if to.id == self.endpoint.id {
            return Arc::clone(
                self.here.get_or_init(|| Arc::new(Channel::here(to.id, &self.registry))),
            );
        }
        if let Some(channel) = self.channels.get(&to.id) {
            return Arc::clone(&channel);
        }
        let mut opened = false;
        let channel = self.channels.entry(to.id).or_insert_with(|| {
            opened = true;
            Arc::new(Channel::opening(to.id))
        });
        let channel = Arc::clone(&channel);
        if opened {
            let (channel, to) = (Arc::clone(&channel), to.clone());
            self.endpoint.spawn(move || async move {
                match self.reach(&to, Role::Peer).await {
                    Ok(connection) => self.attend(to.id, connection).await,
                    Err(problem) => self.close(&channel, &ExitReason::LinkLost(problem)),
                }
            });
        }
        channel
    }

    /// The way to a node, if there is one.
    pub(crate) fn current_channel(&self, to: ProcessId) -> Option<Arc<Channel>> {
        self.channels.get(&to).map(|channel| Arc::clone(&channel))
    }

    /// Connects to a node, as what this one is to it.
    pub(crate) async fn reach(&self, to: &ProcessRef, role: Role) -> Result<Connection, String> {
        let own = self.endpoint;
        let problem =
            |problem| format!("its runtime can't be reached at {}: {problem}", to.address);
        connect_to(&to.address, &own.key, own.id, to.id, role).await.map_err(problem)
    }

    /// There is a link to a node: what goes there can use it. Whoever reads the link has to tell
    /// the peer what comes.
    pub(crate) fn join(&'static self, id: ProcessId, link: &Arc<dyn Link>) -> MeshPeer {
        let channel =
            Arc::clone(&self.channels.entry(id).or_insert_with(|| Arc::new(Channel::opening(id))));
        channel.open(link);
        MeshPeer {
            mesh: self,
            channel,
            link: Arc::clone(link),
            id: self.registry.ports().next_peer(),
        }
    }

    /// A node of this session has connected.
    pub(crate) fn welcome(&'static self, peer: Peer) {
        let Peer { info, connection } = peer;
        tokio::task::spawn_local(self.attend(info.id, connection));
    }

    /// Takes in what a node says, until it is gone, or silent for too long.
    async fn attend(&'static self, id: ProcessId, mut connection: Connection) {
        let config = &self.endpoint.config;
        connection.incoming.set_limit(message_limit(config));
        let mut peer = self.join(id, &connection.link);
        connection.link.set_peer_timeout(config.heartbeat_timeout);
        let beating = send_heartbeats(Arc::clone(&connection.link), config.heartbeat, wire::beat);
        tokio::task::spawn_local(beating);
        let mut heartbeats = HeartbeatMonitor::new(config);
        let reason = loop {
            let message = tokio::select! {
                biased;
                message = connection.next() => message,
                () = heartbeats.lost() => break ExitReason::HeartbeatLost(config.heartbeat_timeout),
            };
            heartbeats.received();
            match message {
                Some(Ok(message)) if wire::is_beat(&message) => connection.allow_sleep(),
                Some(Ok(message)) if message.first() == Some(&MESH) => peer.receive(message),
                Some(Ok(_)) => {
                    tracing::warn!("runtime {id} said something that is not for the mesh")
                }
                Some(Err(error)) => break ExitReason::LinkLost(error.to_string()),
                None => break ExitReason::LinkLost("it was closed by the other side".into()),
            }
        };
        connection.link.close();
        peer.lost(&reason);
    }

    /// A node is gone, or can't be reached. Calls that may be sent again are, the others fail.
    fn close(&'static self, channel: &Arc<Channel>, reason: &ExitReason) {
        let was_connected = channel.is_connected();
        let Some(pending) = channel.close(reason) else { return };
        self.channels.remove_if(&channel.to(), |_, current| Arc::ptr_eq(current, channel));
        let mut routed: Vec<(Arc<Route>, Vec<Pending>)> = Vec::new();
        for pending in pending {
            let Some(route) = pending.route.clone() else {
                pending.tell(Err(Unanswered::Lost(reason.clone())));
                continue;
            };
            match routed.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &route)) {
                Some((_, calls)) => calls.push(pending),
                None => routed.push((route, vec![pending])),
            }
        }
        for (route, calls) in routed {
            self.reroute(&route, channel, calls, reason);
        }
        if was_connected && let Some(after_loss) = self.after_loss.get() {
            after_loss(channel.to());
        }
    }

    /// Sends a call to an owned actor, as soon as it is known where to.
    pub(crate) fn send(
        &'static self,
        route: &Arc<Route>,
        payload: Payload,
        pending: Option<Pending>,
    ) {
        if let Some(ask) = route.send(payload, pending) {
            self.look_for(route, ask);
        }
    }

    /// Asks the owner where an actor is.
    fn look_for(&'static self, route: &Arc<Route>, Ask { after }: Ask) {
        let route = Arc::clone(route);
        self.endpoint.spawn(move || async move {
            let question = Question::Where { actor: route.actor(), after };
            let found = match self.ask(route.owner(), question).await.unwrap_or_else(Place::Gone) {
                Place::At { runtime, incarnation } => {
                    route.found(self.channel(&runtime), incarnation)
                }
                Place::Gone(reason) => return route.gone(&reason),
            };
            if let Some(ask) = found {
                self.look_for(&route, ask);
            }
        });
    }

    /// The channel closed with these calls under way.
    fn reroute(
        &'static self,
        route: &Arc<Route>,
        channel: &Arc<Channel>,
        calls: Vec<Pending>,
        reason: &ExitReason,
    ) {
        let Lost { incarnation, ask, late, failed } = route.lost(channel, calls);
        if let Some(ask) = ask {
            self.look_for(route, ask);
        }
        late.into_iter().for_each(|(payload, call)| self.send(route, payload, Some(call)));
        if failed.is_empty() {
            return;
        }
        let (route, reason) = (Arc::clone(route), reason.clone());
        self.endpoint.spawn(move || async move {
            // The owner knows more than that a link broke.
            let question = Question::Fate { actor: route.actor(), incarnation };
            let reason = match self.ask::<End>(route.owner(), question).await {
                Ok(end) => end.reason,
                Err(_) => reason,
            };
            failed.into_iter().for_each(|call| call.tell(Err(Unanswered::Lost(reason.clone()))));
        });
    }

    /// Asks a node, and waits for the answer.
    ///
    /// # Errors
    /// Why the node can't be asked (any more).
    pub(crate) async fn ask<T: DeserializeOwned>(
        &'static self,
        whom: &ProcessRef,
        question: Question,
    ) -> Result<T, ExitReason> {
        let (sender, answer) = tokio::sync::oneshot::channel();
        let pending = Pending::new(Waiter::Patient(sender));
        if let Err(refused) = self.channel(whom).send(Payload::ask(&question), Some(pending)) {
            return Err(refused.reason);
        }
        let broken = |problem: String| ExitReason::LinkLost(problem);
        match answer.await {
            Ok(Ok(value)) => {
                codec::decode(&value).map_err(|error: Error| broken(error.to_string()))
            }
            Ok(Err(Unanswered::Lost(reason))) => Err(reason),
            Ok(Err(other)) => Err(broken(format!("its owner did not answer: {other:?}"))),
            Err(_) => Err(broken("its owner did not answer".into())),
        }
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("id", &self.endpoint.id).finish_non_exhaustive()
    }
}

/// A node at the other end of a link that is being read. Dropped, the link is taken for lost.
pub(crate) struct MeshPeer {
    mesh: &'static Mesh,
    channel: Arc<Channel>,
    link: Arc<dyn Link>,
    id: PeerId,
}

impl MeshPeer {
    /// A message that began with [`MESH`] has come.
    pub(crate) fn receive(&mut self, message: Bytes) {
        match Frame::read(message) {
            Some(Frame::Answer { call, value }) => self.channel.settle(call, Ok(value)),
            Some(Frame::Failed { call, failure }) => self.channel.settle(call, Err(failure)),
            Some(Frame::Port { call, port, body }) => {
                let link = Arc::clone(&self.link);
                let requester =
                    Requester::new(self.id, Responder::new(ReplyTo::Link(Arc::clone(&link)), call));
                self.mesh
                    .registry
                    .ports()
                    .deliver(port, Request { body, requester, link: Some(link) });
            }
            frame => self.mesh.registry.accept(frame, ReplyTo::Link(Arc::clone(&self.link))),
        }
    }

    /// The link has ended.
    pub(crate) fn lost(&mut self, reason: &ExitReason) {
        if self.channel.uses(&self.link) {
            self.mesh.close(&self.channel, reason);
        }
        self.mesh.registry.lost(self.id);
    }
}

impl Drop for MeshPeer {
    fn drop(&mut self) {
        self.lost(&ExitReason::LinkLost("it is not read any more".into()));
    }
}

#[cfg(test)]
mod tests;
