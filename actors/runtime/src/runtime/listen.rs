//! Connections to this process: of children, of peers in the mesh, and of ring nodes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use fiber_backends::{ListenAddress, Locality};
use fiber_core::{Error, ProcessId, Result, block_on, shortage};
use fiber_transport::{
    HandshakeError, ListenAt, Listener, Peer, PendingPeers, Role, accept_peer, listen,
    listen_near_and_far,
};
use rustix::process::{Uid, geteuid};
use tokio::sync::{OnceCell, oneshot, watch};
use tokio::time::sleep;

use super::Runtime;
use super::parent_info::ChildPlace;

/// The pause after an attempt to accept a connection has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time after which a child that waits for its connection is given up, if all attempts fail.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes a connection, on the runtime's thread.
type PeerHandler = Box<dyn Fn(Peer) + Send + Sync>;

/// The address of this process, and the state of its listener.
#[derive(Default)]
pub(super) struct Listening {
    /// Where to listen; if there is none, the backend decides.
    on: Option<ListenAddress>,
    /// There is none before the first child or exported object.
    address: OnceCell<Address>,
    /// Handlers of connections with roles that this module does not know.
    handlers: DashMap<Role, PeerHandler>,
    /// The time and the reason of the last failure to accept a connection.
    failure: watch::Sender<Option<(Instant, String)>>,
}

/// The address where children and peers connect.
pub(super) struct Address {
    pub(super) link: fiber_core::Address,
    /// `link` as text, as it travels.
    pub(super) url: String,
    /// Where the children run.
    pub(super) locality: Locality,
    /// The user of this process when it began to listen.
    user: Uid,
}

/// The result of a child's handshake.
pub(super) type ChildConnection = Result<Peer, HandshakeError>;

thread_local! {
    /// Children that have started and not connected, of all sessions whose runtimes have this
    /// thread. It is bound to the thread because connections are.
    static EXPECTED: RefCell<HashMap<ProcessId, Expected>> = RefCell::default();
}

struct Expected {
    launch: oneshot::Sender<ChildConnection>,
    /// Whether no process has shown the child's ticket.
    has_ticket: bool,
}

/// A child that will connect. It is not expected any more when this is dropped.
pub(super) struct ExpectedChild {
    pub(super) id: ProcessId,
    pub(super) connection: oneshot::Receiver<ChildConnection>,
}

/// Expects a child with this id.
pub(super) fn expect_child(id: ProcessId) -> ExpectedChild {
    let (launch, connection) = oneshot::channel();
    let expected = Expected { launch, has_ticket: true };
    EXPECTED.with_borrow_mut(|all| all.insert(id, expected));
    ExpectedChild { id, connection }
}

/// Takes the ticket of a child, if it is expected and has not shown it.
fn take_ticket(child: ProcessId) -> bool {
    EXPECTED.with_borrow_mut(|expected| {
        let expected = expected.get_mut(&child);
        expected.is_some_and(|expected| std::mem::take(&mut expected.has_ticket))
    })
}

impl Drop for ExpectedChild {
    fn drop(&mut self) {
        EXPECTED.with_borrow_mut(|expected| expected.remove(&self.id));
    }
}

impl Listening {
    pub(super) fn new(on: Option<ListenAddress>) -> Listening {
        Listening { on, ..Listening::default() }
    }

    pub(super) fn serves_remote_children(&self) -> bool {
        matches!(self.address.get(), Some(Address { locality: Locality::Remote, .. }))
    }
}

impl Runtime {
    /// Sets the handler of connections with a role. It runs on the runtime's thread.
    pub fn on_peer(&self, role: Role, handler: impl Fn(Peer) + Send + Sync + 'static) {
        self.listening.handlers.insert(role, Box::new(handler));
    }

    /// Returns the URL where children and peers connect.
    pub async fn address(&'static self) -> Result<&'static str> {
        self.listen().await.map(|address| address.url.as_str())
    }

    /// Works as [`address`](Runtime::address), and blocks this thread if there is no address yet.
    ///
    /// # Errors
    /// [`Error::System`] if the link can't be opened; [`Error::WouldDeadlock`] on the runtime's own
    /// thread.
    pub fn address_now(&'static self) -> Result<&'static str> {
        if let Some(address) = self.listening.address.get() {
            return Ok(&address.url);
        }
        let (sender, answer) = oneshot::channel();
        self.spawn(move || async move { drop(sender.send(self.address().await)) });
        let ended = |_| Err(Error::system("this process has no address", "fiber's thread ended"));
        block_on(async { answer.await.unwrap_or_else(ended) })
    }

    /// Starts to listen, unless this process listens already.
    pub(super) async fn listen(&'static self) -> Result<&'static Address> {
        let open = || async {
            let listen_on = match &self.listening.on {
                Some(address) => address.clone(),
                None => self.backend.listen_address().await?,
            };
            let ListenAddress { link, bind, advertised, locality } = listen_on;
            let at = ListenAt::new(bind);
            let at = advertised.into_iter().fold(at, ListenAt::advertise);
            let key = &self.endpoint.key;
            // Its neighbours in the host are on this machine, others are not.
            let listener = match self.place {
                ChildPlace::InHost(_) => listen_near_and_far(key, &at),
                ChildPlace::Host if self.interface.is_some() => listen_near_and_far(key, &at),
                ChildPlace::Alone | ChildPlace::Host => listen(link, key, &at),
            };
            let listener = listener.map_err(|error| {
                Error::system(format!("no {link} link could be opened"), shortage::explain(&error))
            })?;
            let url = listener.address();
            let link =
                url.parse().map_err(|error| Error::system("this process has no address", error))?;
            let address = Address { link, url, locality, user: geteuid() };
            fiber_core::spawn_local(self.accept_peers(listener));
            Ok(address)
        };
        self.listening.address.get_or_try_init(open).await
    }

    /// Returns why this process can start no more processes, if that is so for good.
    pub fn starts_are_over(&self) -> Option<String> {
        let Address { link: fiber_core::Address::Unix(_), user, .. } =
            self.listening.address.get()?
        else {
            return None;
        };
        let (before, now) = (user.as_raw(), geteuid().as_raw());
        (before != now).then(|| {
            format!(
                "this process has changed its user from {before} to {now}, and processes of \
                 another user refuse its socket: change the user before the first pool, process, \
                 actor or ring is started"
            )
        })
    }

    /// Accepts connections of peers that hold the session's key and are expected.
    async fn accept_peers(&'static self, mut listener: Box<dyn Listener>) {
        let mut handshakes = PendingPeers::default();
        loop {
            let handshake = poll_fn(|context| {
                loop {
                    if let Poll::Ready(handshake) = handshakes.poll_done(context) {
                        return Poll::Ready(Ok(handshake));
                    }
                    ready!(handshakes.poll_room(context));
                    match ready!(listener.poll_accept(context)) {
                        Ok(connection) => {
                            let (key, id) = (&self.endpoint.key, self.endpoint.id);
                            handshakes.add(accept_peer(connection, key, id, take_ticket));
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            });
            match handshake.await {
                Ok(Ok(peer)) => self.dispatch(peer),
                Ok(Err((error, Some(info)))) if info.role == Role::Child => {
                    hand_over(info.id, Err(error));
                }
                Ok(Err((error, _))) => handshakes.log_rejected(&error.to_string()),
                Err(error) => {
                    let problem = shortage::explain(&error);
                    tracing::error!("no connection can be accepted for now: {problem}");
                    self.listening.failure.send_replace(Some((Instant::now(), problem)));
                    // Most likely too many files are open; some may be closed meanwhile.
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn dispatch(&'static self, peer: Peer) {
        match peer.info.role {
            Role::Peer => self.mesh.accept(peer),
            Role::Child => hand_over(peer.info.id, Ok(peer)),
            role => match self.listening.handlers.get(&role) {
                Some(handler) => handler(peer),
                None => tracing::warn!(
                    "refused a connection of process {}: no handler for its role",
                    peer.info.id
                ),
            },
        }
    }

    /// Returns why a connection could not be accepted after `since`, if that has happened.
    pub(super) fn accept_failure_since(&self, since: Instant) -> Option<String> {
        let failure = self.listening.failure.borrow();
        failure.as_ref().filter(|(when, _)| *when >= since).map(|(_, problem)| problem.clone())
    }

    /// Returns the reason when connections could not be accepted for [`ACCEPT_TIMEOUT`].
    pub(super) async fn accept_failure_lasts(&self) -> String {
        let mut failure = self.listening.failure.subscribe();
        loop {
            // The sender lives in `self`.
            let _ = failure.changed().await;
            sleep(ACCEPT_TIMEOUT).await;
            if let Some((when, problem)) = &*failure.borrow_and_update()
                && when.elapsed() < ACCEPT_TIMEOUT / 2
            {
                return problem.clone();
            }
        }
    }
}

/// Hands a child's connection to its launch.
pub(super) fn hand_over(id: ProcessId, connection: ChildConnection) {
    match EXPECTED.with_borrow_mut(|expected| expected.remove(&id)) {
        // The launch may have given up; the dropped connection ends the child.
        Some(expected) => drop(expected.launch.send(connection)),
        None => {
            tracing::warn!("refused a connection of process {id}: it is not expected any more");
        }
    }
}
