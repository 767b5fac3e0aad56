//! Connections between the processes of a session, and the frames that they carry.
//!
//! - [`Mesh`] has a `Channel` to each process that this one talks to, opened on first use and used
//!   by both sides.
//! - `Registry` has an [`Inbox`] for each actor, and a [`Port`] for each shared object, of this
//!   process that others can reach.
//! - A managed actor is reached through its owner, which knows the process of the actor's current
//!   incarnation: a [`Route`] asks the owner once, and again after each death.
//! - A call is one frame. Its caller gets an answer, a failure, or the reason why no answer comes.

mod alarm;
mod channel;
mod current;
mod dead_letters;
mod deadlines;
mod fan_out;
mod flush;
mod holders;
mod inbox;
mod owned;
mod pace;
mod peer;
mod pending;
mod port;
mod reconnecting;
mod registry;
mod route;
mod routing;
mod unsent;
mod waits;
mod window;
mod wire;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use dashmap::DashMap;
use fiber_core::{ExitReason, ProcessId};
use fiber_transport::{Connection, Link, Pass, Peer, Role};
use parking_lot::{Mutex, RwLock};

pub use self::alarm::Alarm;
pub(crate) use self::channel::{Channel, Refused};
pub use self::current::{current_deadline, enter_request};
pub use self::dead_letters::DeadLetters;
pub(crate) use self::deadlines::Deadlines;
pub use self::deadlines::{Answer, Unanswered, Waiter};
pub use self::fan_out::FanOut;
pub(crate) use self::flush::flush;
pub(crate) use self::holders::{Change, Token};
pub(crate) use self::inbox::is_reader;
pub use self::inbox::{Full, Inbox, IncomingMessage, Responder};
pub use self::owned::OwnedActor;
pub(crate) use self::peer::MeshPeer;
use self::peer::Readings;
pub use self::pending::{Load, Pending};
pub use self::port::{PeerId, Port, Request, Requester, push};
use self::reconnecting::Reconnecting;
pub(crate) use self::registry::Registry;
pub use self::registry::set_transit_time;
pub use self::route::Route;
pub use self::unsent::Unsent;
pub(crate) use self::waits::Ask;
pub use self::wire::{
    ActorId, AnswerFrame, CallFailure, Ends, Payload, PortId, ProcessRef, Query, Terms,
    answer_head, port_head,
};
pub(crate) use self::wire::{ActorLocation, PORT_HEAD, begin_port, unknown as unknown_object};
use crate::endpoint::{Endpoint, connect_to};

/// The smallest number of routes at which unused ones are removed.
const ROUTES: usize = 64;

/// An owned actor: its owner, and its number there.
type RouteId = (ProcessId, ActorId);

type AfterLoss = Box<dyn Fn(ProcessId) -> bool + Send + Sync>;

/// The links of this process, and what other processes can reach here.
pub struct Mesh {
    endpoint: &'static Endpoint,
    registry: Registry,
    channels: DashMap<ProcessId, Arc<Channel>>,
    local: OnceLock<Arc<Channel>>,
    /// The routes of all addresses and pending calls of this process, and some unused ones.
    routes: DashMap<RouteId, Weak<Route>>,
    /// The number of routes at which unused ones are removed.
    max_routes: AtomicUsize,
    deadlines: Deadlines,
    /// Called after the loss of each connected process.
    after_loss: RwLock<Vec<AfterLoss>>,
    unsent: Unsent,
    /// The number of the next request that may be withdrawn.
    tickets: AtomicU64,
    reconnecting: Mutex<Reconnecting>,
    readings: Readings,
}

impl Mesh {
    pub(crate) fn new(endpoint: &'static Endpoint) -> Mesh {
        Mesh {
            endpoint,
            registry: Registry::new(endpoint),
            channels: DashMap::new(),
            local: OnceLock::new(),
            routes: DashMap::new(),
            max_routes: AtomicUsize::new(ROUTES),
            deadlines: Deadlines::new(endpoint),
            after_loss: RwLock::default(),
            unsent: Unsent::default(),
            tickets: AtomicU64::new(0),
            reconnecting: Mutex::default(),
            readings: Readings::default(),
        }
    }

    /// Has `call` called after the loss of each connected process, and again while it returns that
    /// it has sent something to that process and no connection is made.
    pub(crate) fn after_loss(&self, call: impl Fn(ProcessId) -> bool + Send + Sync + 'static) {
        self.after_loss.write().push(Box::new(call));
    }

    /// Returns the frames that are held back to be sent with others.
    pub fn unsent(&self) -> &Unsent {
        &self.unsent
    }

    /// Returns a number that no other request of this process has.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns what other processes can reach here.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the deadlines of the calls of this process.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Returns the route to an owned actor, which all addresses and calls of this process share.
    pub fn route(&self, owner: &ProcessRef, actor: ActorId, name: &Arc<str>) -> Arc<Route> {
        if self.routes.len() >= self.max_routes.load(Ordering::Relaxed) {
            self.routes.retain(|_, route| route.strong_count() > 0);
            self.max_routes.store(ROUTES.max(2 * self.routes.len()), Ordering::Relaxed);
        }
        let mut entry = self.routes.entry((owner.id, actor)).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let dead_letters = Arc::clone(self.registry.dead_letters());
            let route = Route::new(owner.clone(), actor, Arc::clone(name), dead_letters);
            *entry = Arc::downgrade(&route);
            route
        })
    }

    /// Returns all routes, in the order of their owners and actors.
    fn routes(&self) -> Vec<Arc<Route>> {
        let mut routes: Vec<_> = self.routes.iter().filter_map(|route| route.upgrade()).collect();
        routes.sort_unstable_by_key(|route| (route.owner.id, route.actor));
        routes
    }

    /// Returns all channels, in the order of their processes.
    fn channels(&self) -> Vec<Arc<Channel>> {
        let mut channels: Vec<_> = self.channels.iter().map(|entry| Arc::clone(&entry)).collect();
        channels.sort_unstable_by_key(|channel| channel.to);
        channels
    }

    /// Returns the channel to a process. Connects to the process if there is no channel.
    pub fn channel(&'static self, to: &ProcessRef) -> Arc<Channel> {
        if to.id == self.endpoint.id {
            let open = || Arc::new(Channel::local(to.id, &self.registry));
            return Arc::clone(self.local.get_or_init(open));
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
                match self.connect(&to, Role::Peer).await {
                    Ok(connection) => self.serve(to.id, connection).await,
                    Err(problem) => self.close(&channel, &ExitReason::LinkLost(problem)),
                }
            });
        }
        channel
    }

    /// Returns the channel to a process, if there is one.
    pub(crate) fn current_channel(&self, to: ProcessId) -> Option<Arc<Channel>> {
        self.channels.get(&to).map(|channel| Arc::clone(&channel))
    }

    /// Connects to a process in a role.
    ///
    /// # Errors
    /// The reason in words.
    pub async fn connect(&self, to: &ProcessRef, role: Role) -> Result<Connection, String> {
        let own = self.endpoint;
        let problem = |problem: Option<String>| {
            let problem = problem.unwrap_or_default();
            format!("its runtime can't be reached at {}: {problem}", to.address)
        };
        let connected = connect_to(&to.address, &Pass::from(&own.key), own.id, to.id, role).await;
        connected.map(|(connection, _)| connection).map_err(problem)
    }

    /// Sends the messages to a process over a link from now on. The reader of the link has to pass
    /// the messages that come to the returned [`MeshPeer`].
    pub(crate) fn add_link(&'static self, id: ProcessId, link: &Arc<dyn Link>) -> MeshPeer {
        let channel =
            Arc::clone(&self.channels.entry(id).or_insert_with(|| Arc::new(Channel::opening(id))));
        channel.open(link);
        self.reconnecting.lock().end(id);
        MeshPeer::new(self, channel, Arc::clone(link))
    }

    /// Serves a process of this session that has connected to this one.
    pub(crate) fn accept(&'static self, peer: Peer) {
        let Peer { info, connection } = peer;
        fiber_core::spawn_local(self.serve(info.id, connection));
    }
}

#[cfg(test)]
mod tests;
