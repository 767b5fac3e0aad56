//! Fiber inside one process: a background thread, the mesh, and the jobs of children.
//!
//! - This file: the [`Runtime`], of which a process has one.
//! - `listen`: accepts connections of children and other peers; `thread`, `signals` and `exit`: the
//!   background thread, and the end of this process.
//! - `backtraces`: those of panics whose callers have been answered.
//! - `child`: a process that fiber started, from `init` to its end. `parent_info`, `protocol`,
//!   `child_main` and `child_exit` are what parent and child agree on.
//! - `launch`: starts children.
//! - `hosts`: jobs with several processes.
//! - `telemetry`: contexts and spans of OpenTelemetry.

mod backtraces;
mod bridge;
mod child;
mod child_exit;
mod child_main;
mod children;
mod drain;
mod exit;
mod hosts;
mod inspector;
mod launch;
mod listen;
mod names;
mod parent_info;
mod protocol;
mod signals;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg_attr(not(feature = "opentelemetry"), path = "runtime/telemetry/disabled.rs")]
pub mod telemetry;
mod thread;
mod time_limit;
mod usage;

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use actix_rt::ArbiterHandle;
use dashmap::DashMap;
use fiber_backends::{Backend, Job, ListenAddress, backend};
use fiber_core::at_exit::at_exit;
use fiber_core::{
    Config, ConfigProblem, Error, Ignored, LinkKind, ProcessId, Result, SessionKey, forks,
    set_spin, shortage, value_memory,
};
use fiber_values::blob::arena;
use fiber_values::{entry, spill};
use parking_lot::Mutex;

pub use self::backtraces::report_panic;
pub use self::child::init;
pub use self::child_main::{ChildMain, ParentMessage, StartRequest, StartedMain};
use self::children::Children;
pub use self::drain::{DrainHook, Unfit};
use self::hosts::Hosts;
pub use self::hosts::{HostGroup, HostNumber, HostRule, MIN_STAY, Neighbor, Spread};
pub use self::inspector::stats;
pub use self::launch::{
    ChildProcess, Launch, Owner, Placement, ProcessCommand, ReadyChild, SchedulingPolicy,
    StartedChild,
};
use self::listen::Listening;
pub use self::names::set_names;
use self::parent_info::{ChildPlace, ParentInfo};
pub use self::protocol::ControlMessage;
use crate::directory::Directory;
use crate::endpoint::Endpoint;
use crate::events::Events;
use crate::mesh::{DeadLetters, Mesh, ProcessRef, Registry};
use crate::metrics;
use crate::parts::Parts;
use crate::random::Random;
use crate::timeline::{Timeline, What};
use crate::topics::NamedTopics;

/// Limits the memory of values, and lets arrays use shared memory if the links of this process can
/// lend it.
fn limit_value_memory(config: &Config) {
    let limit = config.value_memory.map_or_else(value_memory::default_limit, |size| size.as_u64());
    value_memory::set_limit(limit);
    spill::set_folder(config.spill_dir.clone());
    let can_lend = config.link == LinkKind::Unix && config.backend == "local";
    arena::enable(config.shared_memory && can_lend);
}

/// Starts the recording of the timeline, if the configuration has a file for it.
fn start_timeline(timeline: &'static Timeline, config: &Config) -> Result<()> {
    let Some(path) = &config.timeline else { return Ok(()) };
    timeline.write_to(path, config.timeline_size.as_u64()).map_err(|error| {
        let problem = format!("the file can't be written: {}", shortage::explain(&error));
        ConfigProblem::value("timeline", path.display(), problem).into()
    })
}

/// The runtime of a session in this process, from its first use.
#[derive(Default)]
struct Started {
    /// Set by [`init`].
    may_start: AtomicBool,
    runtime: OnceLock<&'static Runtime>,
    starting: Mutex<()>,
}

/// Fiber inside this process, for one session. It starts on first use.
///
/// Objects keep the runtime with which they were made. It is never freed: see [`Parts`].
pub struct Runtime {
    endpoint: &'static Endpoint,
    backend: Arc<dyn Backend>,
    mesh: Mesh,
    listening: Listening,
    /// The jobs of children that have not ended.
    jobs: DashMap<ProcessId, Arc<dyn Job>>,
    children: Children,
    hosts: Hosts,
    place: ChildPlace,
    /// The host in which this process is.
    host: Option<ProcessId>,
    /// The interface by which processes on other machines reach those of this one's host.
    interface: Option<IpAddr>,
    /// How many events this child has sent to its parent.
    events_sent: AtomicU64,
    started: SystemTime,
    /// Set when the runtime is made.
    directory: OnceLock<&'static Directory>,
    drain_hooks: Mutex<Vec<Weak<dyn DrainHook>>>,
    /// Whether this process has made durable calls.
    has_durable_calls: AtomicBool,
    is_draining: AtomicBool,
    /// Whether this process is about to exit: no child is started any more.
    is_exiting: AtomicBool,
    /// Whether its exit hook has run.
    has_shut_down: AtomicBool,
    is_time_limit_watched: AtomicBool,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Returns the runtime of this thread's session, and starts it if there is none.
    ///
    /// # Errors
    /// [`Error::NotInitialized`]; [`Error::Config`]; [`Error::Forked`]; [`Error::System`] if the
    /// system has no room for the thread.
    pub fn get() -> Result<&'static Runtime> {
        forks::check()?;
        let parts = Parts::current();
        let started = parts.get::<Started>();
        if let Some(runtime) = started.runtime.get() {
            return Ok(runtime);
        }
        let _starting = started.starting.lock();
        match started.runtime.get() {
            Some(runtime) => Ok(runtime),
            None if started.may_start.load(Ordering::Acquire) => Runtime::start(parts),
            None => Err(Error::NotInitialized),
        }
    }

    /// Starts the runtime of a head.
    fn start(parts: &'static Parts) -> Result<&'static Runtime> {
        let config = Config::load()?;
        thread::raise_file_limit();
        let backend = backend(&config)?;
        entry::prepare()?;
        start_timeline(parts.get(), &config)?;
        let unread =
            |error| Error::system("ignored signals can't be read", shortage::explain(&error));
        let ignored = Ignored::now().map_err(unread)?;
        let metrics = config.metrics.map(metrics::bind).transpose()?;
        let thread = thread::start(parts)?;
        let random: &Random = parts.get();
        let (id, key) = (random.process_id(), random.session_key());
        let endpoint = Endpoint::new(parts, id, config, key, thread);
        let runtime = Runtime::new(endpoint, backend, None, None, None, None);
        runtime.part::<Events>().subscribe(|event| {
            runtime.part::<Timeline>().record(What::Event(event.kind.clone()));
            true
        });
        runtime.spawn(move || inspector::serve(runtime));
        if let Some(metrics) = metrics {
            metrics.serve(parts, || runtime.session_stats());
        }
        runtime.spawn(fiber_core::reap_orphans);
        if endpoint.config.signals {
            runtime.spawn(move || signals::end_by_signal(runtime, ignored));
        }
        Ok(runtime)
    }

    /// Returns the runtime of this thread's session, for an object called `name` of a session.
    ///
    /// # Errors
    /// As [`get`](Runtime::get); [`Error::OtherSession`].
    pub fn of_session(session: u64, name: &str) -> Result<&'static Runtime> {
        let runtime = Runtime::get()?;
        if runtime.session() != session {
            return Err(Error::OtherSession { name: name.to_string() });
        }
        Ok(runtime)
    }

    /// Returns the runtime of this thread's session, if it has started.
    pub fn current() -> Option<&'static Runtime> {
        Parts::current().get::<Started>().runtime.get().copied()
    }

    /// Makes the runtime of the endpoint's session.
    fn new(
        endpoint: &'static Endpoint,
        backend: Arc<dyn Backend>,
        listen_on: Option<ListenAddress>,
        info: Option<&ParentInfo>,
        interface: Option<IpAddr>,
        head: Option<ProcessRef>,
    ) -> &'static Runtime {
        set_spin(endpoint.config.spin);
        limit_value_memory(&endpoint.config);
        let runtime: &'static Runtime = Box::leak(Box::new(Runtime {
            endpoint,
            backend,
            mesh: Mesh::new(endpoint),
            listening: Listening::new(listen_on),
            jobs: DashMap::new(),
            children: Children::default(),
            hosts: Hosts::default(),
            place: info.map_or(ChildPlace::Alone, |info| info.place),
            host: info.and_then(ParentInfo::host),
            interface,
            events_sent: AtomicU64::new(0),
            started: SystemTime::now(),
            directory: OnceLock::new(),
            drain_hooks: Mutex::default(),
            has_durable_calls: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            is_exiting: AtomicBool::new(false),
            has_shut_down: AtomicBool::new(false),
            is_time_limit_watched: AtomicBool::new(false),
        }));
        if head.is_none() {
            NamedTopics::open(&runtime.mesh, runtime.part());
        }
        runtime.directory.get_or_init(|| Directory::open(endpoint, &runtime.mesh, head));
        let is_first = runtime.part::<Started>().runtime.set(runtime).is_ok();
        assert!(is_first, "a session has one runtime in a process, or in a thread that is one");
        at_exit(move |waiting_allowed| runtime.shutdown_on_exit(waiting_allowed));
        runtime
    }

    /// Returns what modules keep for this session.
    pub fn parts(&self) -> &'static Parts {
        self.endpoint.parts
    }

    /// Returns what a module keeps for this session: see [`Parts::get`].
    pub fn part<T: Default + Send + Sync + 'static>(&self) -> &'static T {
        self.endpoint.parts.get()
    }

    /// Returns the id of this process, which is unique in the session.
    pub fn id(&self) -> ProcessId {
        self.endpoint.id
    }

    /// Returns the configuration of this process. A child has that of its parent.
    pub fn config(&self) -> &Config {
        &self.endpoint.config
    }

    /// Returns the secret with which processes of the session authenticate links.
    pub fn key(&self) -> &SessionKey {
        &self.endpoint.key
    }

    /// Returns the number that identifies the session.
    pub fn session(&self) -> u64 {
        self.endpoint.session
    }

    /// Returns whether this is the session's first process. Only that one can have journals.
    pub fn is_head(&self) -> bool {
        self.head().is_none()
    }

    /// Returns the session's first process, unless this is it.
    fn head(&self) -> Option<&ProcessRef> {
        self.directory().head()
    }

    /// Returns the names and groups of the session.
    pub fn directory(&self) -> &'static Directory {
        self.directory.get().expect("it is set when the runtime is made")
    }

    /// Checks a number of processes, which a pool or ring shall have. Each takes memory before it
    /// starts.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it is above 100,000.
    pub fn check_processes(method: &'static str, count: usize) -> Result<()> {
        const MOST: usize = 100_000;
        if count <= MOST {
            return Ok(());
        }
        Err(Error::invalid(method, format!("{count} processes are too many: there can be {MOST}")))
    }

    /// Returns how many processes a pool or ring has that sets no number.
    pub fn default_processes(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.config().processes {
            0 => self.backend.default_processes().unwrap_or_else(cores),
            count => count,
        }
    }

    /// Returns the links to other processes.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns what other processes can reach in this one.
    pub fn registry(&self) -> &Registry {
        self.mesh.registry()
    }

    /// Returns the messages that this process could not deliver.
    pub fn dead_letters(&self) -> &Arc<DeadLetters> {
        self.mesh.registry().dead_letters()
    }

    /// Returns the thread on which pools and supervisors run.
    pub fn arbiter(&self) -> &ArbiterHandle {
        &self.endpoint.thread.arbiter
    }

    /// Returns the number of that thread's actix system.
    pub fn system(&self) -> usize {
        self.endpoint.thread.system
    }

    /// Runs a future on the runtime's thread.
    pub fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        future: impl FnOnce() -> F + Send + 'static,
    ) {
        self.endpoint.spawn(future);
    }
}
