//! This process as a node: a background thread with an actix system, the links, and the children's
//! jobs.

mod child;
mod launch;
mod root;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use actix_rt::{Arbiter, ArbiterHandle};
use dashmap::DashMap;
use fiber_backends::{Backend, Job, JobState, ListenAddress, Locality, backend};
use fiber_core::{
    Config, Error, Ignored, ProcessId, Result, SessionKey, Signals, block_on, entry,
    forbid_waiting, set_spin, shortage,
};
use fiber_transport::{
    HandshakeError, ListenAt, Listener, Peer, PendingPeers, Role, accept_peer, listen,
};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, oneshot, watch};
use tokio::time::sleep;

pub use child::init;
pub(crate) use launch::{
    ControlMessage, Launch, ProcessCommand, SchedulingPolicy, launch, monitor,
};
pub(crate) use root::{ChildMain, ParentMessage, StartRequest, StartedMain};

use crate::endpoint::Endpoint;
use crate::mesh::{Mesh, Registry, settle};
use crate::tokio_runtime::new_runtime;

/// How long the exit of this process may be held up by what it sent last, by its children, and by
/// what they printed if it can't be written.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The same by children elsewhere, which nobody ends if this process does not.
const REMOVAL: Duration = Duration::from_secs(20);

/// The pause after an attempt to let a peer in failed, and for how long all have to fail before a
/// child that waits is given up.
const DOOR_PAUSE: Duration = Duration::from_millis(50);
const DOOR_CLOSED: Duration = Duration::from_secs(1);

static INITIALISED: AtomicBool = AtomicBool::new(false);
/// Set when this process is about to end: no child is started any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// This process as a node of its session. There is one, made when it is first needed.
#[derive(Debug)]
pub(crate) struct Runtime {
    endpoint: &'static Endpoint,
    backend: Arc<dyn Backend>,
    /// Where to listen, if the backend need not be asked.
    listen_on: Option<ListenAddress>,
    /// Where children connect to. Nothing listens before there are any.
    address: OnceCell<Address>,
    jobs: DashMap<ProcessId, Arc<dyn Job>>,
    mesh: Mesh,
    /// Who takes in peers of a role that others know of.
    hosts: DashMap<Role, fn(Peer)>,
    /// When no peer could be let in last, and why.
    closed_door: watch::Sender<Option<(Instant, String)>>,
}

/// Where children connect to, and what they are to this process.
#[derive(Debug)]
struct Address {
    url: String,
    locality: Locality,
}

impl Runtime {
    /// The node of this process, started if need be.
    ///
    /// # Errors
    /// [`Error::NotInitialised`], a wrong configuration, or what the system refuses.
    pub(crate) fn get() -> Result<&'static Runtime> {
        let mut current = CURRENT.lock();
        if let Some(runtime) = *current {
            return Ok(runtime);
        }
        if !INITIALISED.load(Ordering::Acquire) {
            return Err(Error::NotInitialised);
        }
        let config = Config::load()?;
        raise_file_limit();
        let backend = backend(&config)?;
        entry::prepare()?;
        let unheard =
            |error| Error::system("signals can't be listened for", shortage::Explained(error));
        let ignored = Ignored::now().map_err(unheard)?;
        let endpoint =
            Endpoint::new(ProcessId::random(), config, SessionKey::random(), start_thread()?);
        let runtime = Runtime::new(endpoint, backend, None);
        *current = Some(runtime);
        fiber_core::at_exit::at_exit(shutdown_on_exit);
        if endpoint.config.signals {
            runtime.spawn(move || end_by_signal(ignored));
        }
        Ok(runtime)
    }

    /// The node of this process, for what is called `name` and is of this session.
    ///
    /// # Errors
    /// As [`get`](Runtime::get); [`Error::OtherSession`].
    pub(crate) fn of_session(session: u64, name: &str) -> Result<&'static Runtime> {
        let runtime = Runtime::get()?;
        if runtime.session() != session {
            return Err(Error::OtherSession { name: name.to_string() });
        }
        Ok(runtime)
    }

    /// The node, if this process has one already.
    pub(crate) fn current() -> Option<&'static Runtime> {
        *CURRENT.lock()
    }

    fn new(
        endpoint: &'static Endpoint,
        backend: Arc<dyn Backend>,
        listen_on: Option<ListenAddress>,
    ) -> &'static Runtime {
        set_spin(endpoint.config.spin);
        Box::leak(Box::new(Runtime {
            endpoint,
            mesh: Mesh::new(endpoint),
            backend,
            listen_on,
            address: OnceCell::new(),
            jobs: DashMap::new(),
            hosts: DashMap::new(),
            closed_door: watch::Sender::default(),
        }))
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.endpoint.id
    }

    pub(crate) fn config(&self) -> &Config {
        &self.endpoint.config
    }

    pub(crate) fn key(&self) -> &SessionKey {
        &self.endpoint.key
    }

    /// Tells its session from others.
    pub(crate) fn session(&self) -> u64 {
        self.endpoint.session
    }

    /// The other nodes.
    pub(crate) fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// What others can reach here.
    pub(crate) fn registry(&self) -> &Registry {
        self.mesh.registry()
    }

    /// The thread on which pools and supervisors run.
    pub(crate) fn arbiter(&self) -> &ArbiterHandle {
        &self.endpoint.arbiter
    }

    /// Runs a future on the node's thread.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        future: impl FnOnce() -> F + Send + 'static,
    ) {
        self.endpoint.spawn(future);
    }

    /// Has `host` take in peers of a role, on the node's thread.
    pub(crate) fn on_peer(&self, role: Role, host: fn(Peer)) {
        self.hosts.insert(role, host);
    }

    /// Where children and other nodes connect to.
    pub(crate) async fn address(&'static self) -> Result<&'static str> {
        self.listening().await.map(|address| address.url.as_str())
    }

    /// Where this node listens, which it does from the first call on.
    async fn listening(&'static self) -> Result<&'static Address> {
        let listen = || async {
            let listen_on = match &self.listen_on {
                Some(address) => address.clone(),
                None => self.backend.listen_address().await?,
            };
            let ListenAddress { link, bind, advertised, locality } = listen_on;
            let at = ListenAt::new(bind);
            let at = advertised.into_iter().fold(at, ListenAt::advertise);
            let listener = listen(link, &self.endpoint.key, &at).map_err(|error| {
                Error::system(format!("no {link} link could be opened"), shortage::Explained(error))
            })?;
            let address = Address { url: listener.address(), locality };
            tokio::task::spawn_local(self.welcome(listener));
            Ok(address)
        };
        self.address.get_or_try_init(listen).await
    }

    /// As [`address`](Runtime::address), for code that can't wait for a future.
    ///
    /// # Errors
    /// As there; [`Error::WouldDeadlock`] on the node's own thread, when there is no address yet.
    pub(crate) fn address_now(&'static self) -> Result<&'static str> {
        if let Some(address) = self.address.get() {
            return Ok(&address.url);
        }
        let (sender, answer) = oneshot::channel();
        self.spawn(move || async move { drop(sender.send(self.address().await)) });
        let ended = |_| Err(Error::system("this process has no address", "fiber's thread ended"));
        block_on(async { answer.await.unwrap_or_else(ended) })
    }

    /// Lets peers in that hold the key and are expected.
    async fn welcome(&'static self, mut listener: Box<dyn Listener>) {
        let mut pending_peers = PendingPeers::default();
        loop {
            let shaken = poll_fn(|context| {
                loop {
                    if let Poll::Ready(shaken) = pending_peers.poll_entered(context) {
                        return Poll::Ready(Ok(shaken));
                    }
                    ready!(pending_peers.poll_room(context));
                    match ready!(listener.poll_accept(context)) {
                        Ok(connection) => pending_peers.add(accept_peer(
                            connection,
                            &self.endpoint.key,
                            self.endpoint.id,
                        )),
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            });
            match shaken.await {
                Ok(Ok(peer)) => self.let_in(peer),
                Ok(Err((error, Some(info)))) if info.role == Role::Child => {
                    self.hand_over(info.id, Err(error))
                }
                Ok(Err((error, _))) => pending_peers.refuse(&error.to_string()),
                Err(error) => {
                    let problem = shortage::explain(&error);
                    tracing::error!("no peer can be let in for now: {problem}");
                    self.closed_door.send_replace(Some((Instant::now(), problem)));
                    // Most likely too many files are open: what ends meanwhile makes room.
                    sleep(DOOR_PAUSE).await;
                }
            }
        }
    }

    fn let_in(&'static self, peer: Peer) {
        match peer.info.role {
            Role::Peer => self.mesh.welcome(peer),
            Role::Child => self.hand_over(peer.info.id, Ok(peer)),
            role => match self.hosts.get(&role) {
                Some(host) => host(peer),
                None => tracing::warn!(
                    "turned runtime {} away: it comes for what is not here",
                    peer.info.id
                ),
            },
        }
    }

    /// Why this node could let no peer in at some time since, if there was such a time.
    fn door_closed_since(&self, since: Instant) -> Option<String> {
        self.closed_door
            .borrow()
            .clone()
            .filter(|(when, _)| *when >= since)
            .map(|(_, problem)| problem)
    }

    /// Returns when this node could let no peer in for a while, with the reason.
    async fn door_stays_closed(&self) -> String {
        let mut door = self.closed_door.subscribe();
        loop {
            // The sender lives in `self`.
            let _ = door.changed().await;
            sleep(DOOR_CLOSED).await;
            if let Some((when, problem)) = &*door.borrow_and_update()
                && when.elapsed() < DOOR_CLOSED / 2
            {
                return problem.clone();
            }
        }
    }

    fn hand_over(&self, id: ProcessId, peer: Result<Peer, HandshakeError>) {
        match EXPECTED.with_borrow_mut(|expected| expected.remove(&id)) {
            // Whoever expected it may have given up meanwhile; dropping the connection tells the
            // peer.
            Some(waiting) => drop(waiting.send(peer)),
            None => tracing::warn!("turned runtime {id} away: it is not expected (any more)"),
        }
    }

    /// How long the end of this process may be held up by its children's.
    fn parting(&self) -> Duration {
        match self.address.get() {
            Some(Address { locality: Locality::Remote, .. }) => REMOVAL,
            _ => LAST_WORDS,
        }
    }

    /// Ends all children at once, and lets no more be started. Any thread may call it, also while
    /// this process exits.
    fn kill_children(&self) -> Vec<Arc<dyn Job>> {
        ENDING.store(true, Ordering::SeqCst);
        let jobs: Vec<_> = self.jobs.iter().map(|job| Arc::clone(job.value())).collect();
        jobs.iter().for_each(|job| job.kill());
        jobs
    }
}

static CURRENT: Mutex<Option<&'static Runtime>> = Mutex::new(None);

thread_local! {
    /// Children that were started and have not connected. Connections stay on the node's thread,
    /// and so does this.
    static EXPECTED: RefCell<HashMap<ProcessId, oneshot::Sender<Result<Peer, HandshakeError>>>> = RefCell::default();
}

fn start_thread() -> Result<ArbiterHandle> {
    let (started, arbiter) = std::sync::mpsc::channel();
    let run = move || {
        forbid_waiting();
        let runtime = match new_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        actix_rt::System::with_tokio_rt(|| runtime).block_on(async {
            let _ = started.send(Ok(Arbiter::current()));
            std::future::pending::<()>().await;
        });
    };
    let spawned = thread::Builder::new().name("fiber-runtime".into()).spawn(run).map(drop);
    let arbiter =
        spawned.and_then(|()| arbiter.recv().unwrap_or_else(|ended| Err(io::Error::other(ended))));
    arbiter.map_err(|error| {
        Error::system("fiber's thread could not be started", shortage::Explained(error))
    })
}

/// Each child takes a few descriptors, and the usual limit allows few children.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays: {error}");
    }
}

/// At the end of this process: what it has sent arrives, its children end, and what they printed
/// comes out.
fn shutdown_on_exit(waiting_allowed: bool) {
    let Some(runtime) = CURRENT.try_lock().and_then(|current| *current) else { return };
    if waiting_allowed {
        settle(runtime.mesh(), LAST_WORDS);
    }
    let jobs = runtime.kill_children();
    // The node's thread passes the last words on; if this is that thread, nobody does.
    if waiting_allowed {
        let (done, ended) = std::sync::mpsc::channel();
        runtime.spawn(move || async move {
            all_ended(jobs).await;
            let _ = done.send(());
        });
        let _ = ended.recv_timeout(runtime.parting());
        fiber_backends::flush(LAST_WORDS);
    }
}

/// Ends the children, and then this process in the way that the signal asks for.
async fn end_by_signal(ignored: Ignored) {
    let Ok(mut signals) = Signals::listen_but_for(ignored) else {
        return tracing::warn!("signals can't be handled; children end when this process is gone");
    };
    let number = signals.next().await;
    let Some(runtime) = Runtime::current() else { return };
    let ended = tokio::time::timeout(runtime.parting(), all_ended(runtime.kill_children()));
    // A second signal is from somebody who does not want to wait for that.
    tokio::select! {
        _ = ended => {}
        _ = signals.next() => {}
    }
    fiber_backends::flush_within(LAST_WORDS);
    let _ = signal_hook::low_level::emulate_default_handler(number);
}

async fn all_ended(jobs: Vec<Arc<dyn Job>>) {
    for job in jobs {
        let _ = job.states().wait_for(|state| matches!(state, JobState::Ended(_))).await;
    }
}
