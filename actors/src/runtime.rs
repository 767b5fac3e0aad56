//! Fiber inside one process: a background thread, the mesh, and the jobs of children.
//!
//! - This file: the [`Runtime`], of which a process has one.
//! - `listen`: accepts connections of children and other peers; `thread`, `signals` and `exit`: the
//!   background thread, and the end of this process.
//! - `child`: a process that fiber started, from `init` to its end. `parent_info`, `protocol`,
//!   `child_main` and `child_exit` are what parent and child agree on.
//! - `launch`: starts children.
//! - `hosts`: jobs with several processes.
//! - `telemetry`: contexts and spans of OpenTelemetry.

mod bridge;
mod child;
mod child_exit;
mod child_main;
mod children;
mod drain;
mod exit;
mod figures;
mod hosts;
mod inspector;
mod launch;
mod listen;
mod parent_info;
mod protocol;
mod signals;
#[cfg_attr(not(feature = "opentelemetry"), path = "runtime/telemetry/disabled.rs")]
pub(crate) mod telemetry;
mod thread;
mod time_limit;

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use actix_rt::ArbiterHandle;
use dashmap::DashMap;
use fiber_backends::{Backend, Job, ListenAddress, backend};
use fiber_core::blob::arena;
use fiber_core::{
    Config, ConfigProblem, Error, Ignored, LinkKind, ProcessId, Result, SessionKey, entry,
    set_spin, shortage, spill, value_memory,
};
use parking_lot::Mutex;

pub use self::child::init;
pub(crate) use self::child_main::{ChildMain, ParentMessage, StartRequest, StartedMain};
use self::children::Children;
pub(crate) use self::drain::{is_draining, note_durable_call};
pub(crate) use self::exit::is_exiting;
use self::hosts::Hosts;
pub(crate) use self::hosts::{HostGroup, HostNumber};
pub use self::inspector::stats;
pub(crate) use self::launch::{
    JobKind, Launch, Launched, ProcessCommand, SchedulingPolicy, launch, monitor,
};
use self::listen::Listening;
use self::parent_info::ChildPlace;
pub(crate) use self::protocol::ControlMessage;
use crate::endpoint::Endpoint;
use crate::mesh::{Mesh, Registry};
use crate::metrics;
use crate::stats::subscribe;
use crate::timeline;

/// Set by [`init`].
static INITIALISED: AtomicBool = AtomicBool::new(false);

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
fn start_timeline(config: &Config) -> Result<()> {
    let Some(path) = &config.timeline else { return Ok(()) };
    timeline::write_to(path, config.timeline_size.as_u64()).map_err(|error| {
        let problem = format!("the file can't be written: {}", shortage::explain(&error));
        ConfigProblem::value("timeline", path.display(), problem).into()
    })
}

static CURRENT: Mutex<Option<&'static Runtime>> = Mutex::new(None);

/// Fiber inside this process. It starts on first use.
#[derive(Debug)]
pub(crate) struct Runtime {
    endpoint: &'static Endpoint,
    backend: Arc<dyn Backend>,
    mesh: Mesh,
    listening: Listening,
    /// The jobs of children that have not ended.
    jobs: DashMap<ProcessId, Arc<dyn Job>>,
    children: Children,
    hosts: Hosts,
    place: ChildPlace,
    /// The interface by which processes on other machines reach those of this one's host.
    interface: Option<IpAddr>,
    /// How many events this child has sent to its parent.
    events_sent: AtomicU64,
    started: SystemTime,
    is_head: bool,
}

impl Runtime {
    /// Returns the runtime of this process, and starts it if there is none.
    ///
    /// # Errors
    /// [`Error::NotInitialised`]; [`Error::Config`]; [`Error::System`] if the system has no room
    /// for the thread.
    pub(crate) fn get() -> Result<&'static Runtime> {
        let mut current = CURRENT.lock();
        if let Some(runtime) = *current {
            return Ok(runtime);
        }
        if !INITIALISED.load(Ordering::Acquire) {
            return Err(Error::NotInitialised);
        }
        let config = Config::load()?;
        thread::raise_file_limit();
        let backend = backend(&config)?;
        entry::prepare()?;
        start_timeline(&config)?;
        let unread =
            |error| Error::system("ignored signals can't be read", shortage::explain(&error));
        let ignored = Ignored::now().map_err(unread)?;
        let metrics = config.metrics.map(metrics::bind).transpose()?;
        let arbiter = thread::start()?;
        let endpoint = Endpoint::new(ProcessId::random(), config, SessionKey::random(), arbiter);
        let runtime = Runtime::new(endpoint, backend, None, ChildPlace::Alone, None, true);
        *current = Some(runtime);
        subscribe(|event| {
            timeline::record_event(event);
            true
        });
        runtime.spawn(move || inspector::serve(runtime));
        if let Some(metrics) = metrics {
            metrics.serve(|| runtime.session_stats());
        }
        fiber_core::at_exit::at_exit(exit::shutdown_on_exit);
        if endpoint.config.signals {
            runtime.spawn(move || signals::end_by_signal(ignored));
        }
        Ok(runtime)
    }

    /// Returns the runtime of this process, for an object called `name` of this session.
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

    /// Returns the runtime, if it has started.
    pub(crate) fn current() -> Option<&'static Runtime> {
        *CURRENT.lock()
    }

    fn new(
        endpoint: &'static Endpoint,
        backend: Arc<dyn Backend>,
        listen_on: Option<ListenAddress>,
        place: ChildPlace,
        interface: Option<IpAddr>,
        is_head: bool,
    ) -> &'static Runtime {
        set_spin(endpoint.config.spin);
        limit_value_memory(&endpoint.config);
        Box::leak(Box::new(Runtime {
            endpoint,
            backend,
            mesh: Mesh::new(endpoint),
            listening: Listening::new(listen_on),
            jobs: DashMap::new(),
            children: Children::default(),
            hosts: Hosts::default(),
            place,
            interface,
            events_sent: AtomicU64::new(0),
            started: SystemTime::now(),
            is_head,
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

    /// Returns the number that identifies the session.
    pub(crate) fn session(&self) -> u64 {
        self.endpoint.session
    }

    /// Returns whether this is the session's first process. Only that one can have journals.
    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    /// Returns how many processes a pool or ring has that sets no number.
    pub(crate) fn default_processes(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.config().processes {
            0 => self.backend.default_processes().unwrap_or_else(cores),
            count => count,
        }
    }

    /// Returns the links to other processes.
    pub(crate) fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns what other processes can reach in this one.
    pub(crate) fn registry(&self) -> &Registry {
        self.mesh.registry()
    }

    /// Returns the thread on which pools and supervisors run.
    pub(crate) fn arbiter(&self) -> &ArbiterHandle {
        &self.endpoint.arbiter
    }

    /// Runs a future on the runtime's thread.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        future: impl FnOnce() -> F + Send + 'static,
    ) {
        self.endpoint.spawn(future);
    }
}
