//! This node among the others of its session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use dashmap::DashMap;
use fiber_core::{BuildId, ExitReason, Failure, FailureKind, NodeId, SessionKey};
use fiber_transport::{Connection, Link, Peer, PeerInfo, Role, connect, join};

use super::channel::Channel;
use super::deadlines::Deadlines;
use super::inbox::{Delivery, Inbox, ReplyTo, Responder};
use super::owned::Owned;
use super::port::{Asker, Letter, PeerId, Ports};
use super::question;
use super::route::Route;
use super::wire::{self, ActorId, CallFailure, Frame, NodeRef};
use crate::node::{HANDSHAKE, MESH, Node, Pulse, give_signs_of_life, host_name, message_limit};

/// The other nodes, and what they can reach here.
pub(crate) struct Mesh {
    id: NodeId,
    session: u64,
    channels: DashMap<NodeId, Arc<Channel>>,
    here: OnceLock<Arc<Channel>>,
    inboxes: DashMap<ActorId, Arc<Inbox>>,
    owned: DashMap<ActorId, Arc<Owned>>,
    routes: DashMap<(NodeId, ActorId), Arc<Route>>,
    deadlines: Deadlines,
    ports: Ports,
    last: AtomicU64,
}

impl Mesh {
    pub(crate) fn new(id: NodeId, key: &SessionKey) -> Mesh {
        Mesh {
            id,
            session: key.session(),
            channels: DashMap::new(),
            here: OnceLock::new(),
            inboxes: DashMap::new(),
            owned: DashMap::new(),
            routes: DashMap::new(),
            deadlines: Deadlines::default(),
            ports: Ports::default(),
            last: AtomicU64::new(ActorId::HOSTED.0),
        }
    }

    /// Tells this session from others.
    pub(super) fn session(&self) -> u64 {
        self.session
    }

    pub(super) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// What others can speak to beside actors.
    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    fn next_id(&self) -> ActorId {
        ActorId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Lets others reach what reads this inbox.
    pub(crate) fn export(&self, inbox: Arc<Inbox>) -> ActorId {
        let id = self.next_id();
        self.inboxes.insert(id, inbox);
        id
    }

    /// Lets others reach the actor that this process was started for.
    pub(crate) fn host(&self, inbox: Arc<Inbox>) {
        self.inboxes.insert(ActorId::HOSTED, inbox);
    }

    pub(super) fn inbox(&self, actor: ActorId) -> Option<Arc<Inbox>> {
        self.inboxes.get(&actor).map(|inbox| Arc::clone(&inbox))
    }

    /// An actor that this node is going to start elsewhere.
    pub(crate) fn own(&self) -> Arc<Owned> {
        let owned = Owned::new(self.next_id());
        self.owned.insert(owned.id(), Arc::clone(&owned));
        owned
    }

    pub(super) fn owned(&self, actor: ActorId) -> Option<Arc<Owned>> {
        self.owned.get(&actor).map(|owned| Arc::clone(&owned))
    }

    /// The way to an owned actor.
    pub(super) fn route(&self, owner: &NodeRef, actor: ActorId) -> Arc<Route> {
        if let Some(route) = self.routes.get(&(owner.id, actor)) {
            return Arc::clone(&route);
        }
        let route = self.routes.entry((owner.id, actor)).or_insert_with(|| Route::new(owner.clone(), actor));
        Arc::clone(&route)
    }

    /// All ways to owned actors.
    pub(super) fn routes(&self) -> Vec<Arc<Route>> {
        self.routes.iter().map(|route| Arc::clone(&route)).collect()
    }

    /// All ways to other nodes.
    pub(super) fn channels(&self) -> Vec<Arc<Channel>> {
        self.channels.iter().map(|channel| Arc::clone(&channel)).collect()
    }

    /// The way to a node, which is being opened if there is none.
    pub(super) fn channel(&self, node: &'static Node, to: &NodeRef) -> Arc<Channel> {
        if to.id == self.id {
            return Arc::clone(self.here.get_or_init(|| Arc::new(Channel::here(node))));
        }
        if let Some(channel) = self.channels.get(&to.id) {
            return Arc::clone(&channel);
        }
        let mut opened = false;
        let channel = self.channels.entry(to.id).or_insert_with(|| {
            opened = true;
            Arc::new(Channel::opening(node, to.id))
        });
        let channel = Arc::clone(&channel);
        if opened {
            let (channel, to) = (Arc::clone(&channel), to.clone());
            node.spawn(move || async move {
                match reach(node, &to, Role::Peer).await {
                    Ok(connection) => node.mesh().attend(node, to.id, connection).await,
                    Err(problem) => channel.close(&ExitReason::LinkLost(problem)),
                }
            });
        }
        channel
    }

    /// A channel has closed.
    pub(super) fn forget(&self, channel: &Arc<Channel>) {
        self.channels.remove_if(&channel.to(), |_, current| Arc::ptr_eq(current, channel));
    }

    /// There is a link to a node: what goes there can use it. Whoever reads the link has to tell the peer what comes.
    pub(crate) fn join(&self, node: &'static Node, id: NodeId, link: &Arc<dyn Link>) -> MeshPeer {
        let channel = Arc::clone(&self.channels.entry(id).or_insert_with(|| Arc::new(Channel::opening(node, id))));
        channel.open(link);
        MeshPeer { node, channel, link: Arc::clone(link), id: self.ports.next_peer() }
    }

    /// A node of this session has connected.
    pub(crate) fn welcome(&'static self, node: &'static Node, peer: Peer) {
        let Peer { info, connection } = peer;
        tokio::task::spawn_local(self.attend(node, info.node, connection));
    }

    /// Takes in what a node says, until it is gone, or silent for too long.
    async fn attend(&self, node: &'static Node, id: NodeId, mut connection: Connection) {
        connection.incoming.set_limit(message_limit(node.config()));
        let mut peer = self.join(node, id, &connection.link);
        let config = node.config();
        connection.link.give_up_after(config.heartbeat_timeout);
        let beating = give_signs_of_life(Arc::clone(&connection.link), config.heartbeat, wire::beat);
        tokio::task::spawn_local(beating);
        let mut pulse = Pulse::new(config);
        let reason = loop {
            let message = tokio::select! {
                biased;
                message = connection.next() => message,
                () = pulse.lost() => break ExitReason::HeartbeatLost(config.heartbeat_timeout),
            };
            pulse.felt();
            match message {
                Some(Ok(message)) if wire::is_beat(&message) => connection.rest(),
                Some(Ok(message)) if message.first() == Some(&MESH) => peer.receive(message),
                Some(Ok(_)) => tracing::warn!("node {id} said something that is not for the mesh"),
                Some(Err(error)) => break ExitReason::LinkLost(error.to_string()),
                None => break ExitReason::LinkLost("it was closed by the other side".into()),
            }
        };
        connection.link.close();
        peer.lost(&reason);
    }

    /// Acts on a frame.
    pub(super) fn accept(&self, node: &'static Node, frame: Option<Frame>, from: ReplyTo) {
        match frame {
            Some(Frame::Call { call, actor, method, message }) => {
                let responder = Responder::new(from, call);
                match self.inboxes.get(&actor) {
                    Some(inbox) => inbox.push(Delivery { method, message, responder }),
                    None => responder.fail(&CallFailure::Stopped(question::unknown())),
                }
            }
            Some(Frame::Port { call, port, body }) => {
                let asker = Asker::new(PeerId::HERE, Responder::new(from, call));
                self.ports.deliver(port, Letter { body, asker, link: None });
            }
            Some(Frame::Ask { call, question }) => {
                let responder = Responder::new(from, call);
                node.spawn(move || async move {
                    match question::answer(node, question).await {
                        Ok(value) => {
                            let mut frame = wire::answer_head();
                            frame.extend_from_slice(&value);
                            responder.answer(frame);
                        }
                        Err(error) => responder.fail(&CallFailure::Failed(Failure::new(FailureKind::Result, error))),
                    }
                });
            }
            Some(Frame::Beat) => {}
            Some(Frame::Answer { .. } | Frame::Failed { .. }) | None => {
                tracing::error!("a frame of another node was ignored, for it makes no sense");
            }
        }
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A node at the other end of a link that is being read. Dropped, the link is taken for lost.
pub(crate) struct MeshPeer {
    node: &'static Node,
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
                let asker = Asker::new(self.id, Responder::new(ReplyTo::Link(Arc::clone(&link)), call));
                self.node.mesh().ports.deliver(port, Letter { body, asker, link: Some(link) });
            }
            frame => self.node.mesh().accept(self.node, frame, ReplyTo::Link(Arc::clone(&self.link))),
        }
    }

    /// The link has ended.
    pub(crate) fn lost(&mut self, reason: &ExitReason) {
        if self.channel.uses(&self.link) {
            self.channel.close(reason);
        }
        self.node.mesh().ports.lost(self.id);
    }
}

impl Drop for MeshPeer {
    fn drop(&mut self) {
        self.lost(&ExitReason::LinkLost("it is not read any more".into()));
    }
}

/// Connects to a node, as what this one is to it.
pub(crate) async fn reach(node: &'static Node, to: &NodeRef, role: Role) -> Result<Connection, String> {
    let connect = async {
        let mut connection = connect(&to.address, node.key()).await.map_err(|error| error.to_string())?;
        let info = PeerInfo {
            node: node.id(),
            to: to.id,
            role,
            build: BuildId::current().clone(),
            pid: std::process::id(),
            host: host_name(),
        };
        join(&mut connection, node.key(), &info).await.map_err(|error| error.to_string())?;
        Ok(connection)
    };
    let problem = |problem: String| format!("its node can't be reached at {}: {problem}", to.address);
    match tokio::time::timeout(HANDSHAKE, connect).await {
        Ok(result) => result.map_err(problem),
        Err(_) => Err(problem(format!("no answer within {HANDSHAKE:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fiber_core::Config;
    use fiber_transport::{Message, join};

    use super::*;

    /// How long anything may take that is to happen at all.
    const LONG: Duration = Duration::from_secs(20);

    fn info(node: &Node) -> PeerInfo {
        PeerInfo {
            node: NodeId::random(),
            to: node.id(),
            role: Role::Peer,
            build: BuildId::current().clone(),
            pid: 1,
            host: "nowhere".into(),
        }
    }

    async fn end(mut connection: Connection) {
        let ended = async { while let Some(Ok(_)) = connection.next().await {} };
        tokio::time::timeout(LONG, ended).await.expect("the link is given up");
    }

    #[test]
    fn peers_that_fall_silent_or_are_looked_for_in_vain_are_given_up() {
        crate::init();
        Config::set(|config| {
            config.heartbeat = Duration::from_millis(20);
            config.heartbeat_timeout = Duration::from_millis(100);
        });
        let node = Node::get().unwrap();
        let address = node.address_now().unwrap();
        actix_rt::System::new().block_on(async {
            let mut silent = connect(address, node.key()).await.unwrap();
            join(&mut silent, node.key(), &info(node)).await.unwrap();
            end(silent).await;

            let mut lively = connect(address, node.key()).await.unwrap();
            join(&mut lively, node.key(), &info(node)).await.unwrap();
            let link = Arc::clone(&lively.link);
            let beating = give_signs_of_life(Arc::clone(&link), Duration::from_millis(20), wire::beat);
            tokio::task::spawn_local(beating);
            // Nonsense harms nobody, and what is said after it is answered.
            link.send(Message::new(vec![MESH, 99])).unwrap();
            link.send(Message::new(vec![99])).unwrap();
            let question = question::Question::Ended { actor: ActorId(7777) };
            link.send(wire::Parcel::ask(&question).into_message(5)).unwrap();
            loop {
                let frame = lively.next().await.expect("the link lives").unwrap();
                match Frame::read(frame) {
                    Some(Frame::Answer { call: 5, .. }) => break,
                    Some(Frame::Beat) => {}
                    _ => panic!("an answer was asked for"),
                }
            }

            // A message that this build does not know: only another build could send it, and that is refused before.
            struct Deaf;
            impl actix::Actor for Deaf {
                type Context = actix::Context<Deaf>;
            }
            let inbox = Arc::new(Inbox::new(1));
            let actor = node.mesh().export(Arc::clone(&inbox));
            let mut dispatch = super::super::porter::Dispatch::new(usize::MAX);
            let unknown = fiber_core::entry::EntryRef { offset: 8, name: 7 };
            link.send(wire::Parcel::call(actor, unknown, &()).unwrap().into_message(6)).unwrap();
            let delivery = std::future::poll_fn(|task| inbox.poll_next(task)).await.expect("it is open");
            let addr = actix::Actor::start(Deaf);
            dispatch.handle(&mut addr.clone(), &mut (), delivery).unwrap();
            loop {
                let frame = lively.next().await.expect("the link lives").unwrap();
                match Frame::read(frame) {
                    Some(Frame::Failed { call: 6, failure: CallFailure::Failed(failure) }) => {
                        assert_eq!(failure.kind, FailureKind::Unknown);
                        assert!(failure.message.contains("another build"), "{failure}");
                        break;
                    }
                    Some(Frame::Beat) => {}
                    _ => panic!("a failure was to be told"),
                }
            }

            let mut stray = connect(address, node.key()).await.unwrap();
            let elsewhere = PeerInfo { to: NodeId::random(), ..info(node) };
            let refusal = join(&mut stray, node.key(), &elsewhere).await.unwrap_err();
            assert!(refusal.to_string().contains("not this one"), "{refusal}");
        });
    }
}
