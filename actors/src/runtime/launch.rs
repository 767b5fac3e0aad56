//! Starts child processes and brings them to work.
//!
//! In order: [`creation`] of the job, [`readiness`] of the process within its [`limits`], or the
//! reason of its [`failure`]; then [`monitor`] until the end.

mod creation;
mod failure;
mod limits;
mod monitor;
mod readiness;

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use fiber_backends::{Job, JobSpec, JobState, Locality};
use fiber_core::stats::ProcessRole;
use fiber_core::{Config, Exit, ExitReason, LinkKind, Meta, OutputMode, ProcessId, variables};
use fiber_transport::{Connection, PeerInfo};
use tokio::time::timeout;

pub(super) use self::creation::create;
use self::failure::StartFailure;
pub(super) use self::failure::not_started;
pub(crate) use self::limits::SchedulingPolicy;
pub(super) use self::monitor::ended;
pub(crate) use self::monitor::{ProcessCommand, monitor};
use self::readiness::Ready;
use super::Runtime;
use super::child_main::StartRequest;
use super::exit::is_exiting;
use super::hosts::{HostGroup, HostNumber};
use super::listen::{expect_child, unexpect_child};
use super::parent_info::{ChildPlace, ParentInfo};
use super::protocol::ControlMessage;
use super::time_limit;
use crate::mesh::MeshPeer;

/// Time by which the ends of a process and of its link may differ, before the parent forces the
/// other.
pub(super) const MAX_LAG: Duration = Duration::from_secs(1);
/// The same for a container or pod, whose end comes by way of its engine.
const MAX_LAG_REMOTE: Duration = Duration::from_secs(5);

/// With fewer levels of processes left, a process that starts some says so.
const FEW_LEVELS: u32 = 6;

/// A child process to start.
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) role: ProcessRole,
    pub(crate) restarts: u64,
    /// Whether to retry for `start_timeout` if the backend can't create the job. A job that has run
    /// before fails then for lack of descriptors, processes or memory, or because its engine does
    /// not answer.
    pub(crate) retry_creation: bool,
    pub(crate) meta: Meta,
    pub(crate) output: OutputMode,
    pub(crate) request: StartRequest,
    /// Without a policy, the process waits for resources as long as the configuration allows.
    pub(crate) scheduling: Option<Box<dyn SchedulingPolicy>>,
    pub(crate) kind: JobKind,
}

/// What a job is for.
pub(crate) enum JobKind {
    /// One process, which may share a job with others of its group.
    Process(Arc<HostGroup>),
    /// The host of up to so many processes.
    Host { machine: Option<String>, processes: usize },
}

/// A child process at work.
pub(crate) struct Launched {
    pub(crate) info: PeerInfo,
    pub(crate) connection: Connection,
    /// Where other processes can connect to it.
    pub(crate) address: Option<String>,
    /// The host in which it runs, if it shares a job.
    pub(crate) host: Option<HostNumber>,
    /// Whether it is a host, whose messages are those of other processes.
    is_host: bool,
    /// Set when it is being lost, which takes a while: its link has ended, or it is killed.
    pub(super) is_failing: Arc<AtomicBool>,
    /// The same of its host. Heartbeats that are missing meanwhile don't count against the process.
    is_host_failing: Option<Arc<AtomicBool>>,
    peer: MeshPeer,
    job_guard: JobGuard,
}

impl Launched {
    /// Returns where it runs, for users: `pid 4711`.
    pub(crate) fn place(&self) -> String {
        self.job_guard.job.place()
    }
}

/// Kills a job when it is dropped.
struct JobGuard {
    runtime: &'static Runtime,
    id: ProcessId,
    max_lag: Duration,
    job: Arc<dyn Job>,
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        self.job.kill();
        unexpect_child(self.id);
        self.runtime.children.remove(self.id);
        // The job stays in the list until it has ended, so that the exit of this process waits.
        let (runtime, id, job) = (self.runtime, self.id, Arc::clone(&self.job));
        if let JobState::Ended(_) = *job.states().borrow() {
            runtime.jobs.remove(&id);
        } else {
            runtime.spawn(move || async move {
                monitor::ended(&mut job.states()).await;
                runtime.jobs.remove(&id);
            });
        }
    }
}

/// Returns the configuration of a host and of what runs in it: processes beside it.
fn beside_host(config: &Config) -> Config {
    let mut beside = config.clone();
    beside.backend = "local".into();
    beside.link = LinkKind::Unix;
    beside.processes_per_job = 1;
    beside
}

/// Returns how many levels of processes a child of this one may have below it.
///
/// # Errors
/// This process may have no children.
fn levels_below(config: &Config) -> Result<u32, String> {
    static WARN: Once = Once::new();
    let Some(levels) = config.max_depth.checked_sub(1) else {
        return Err("processes that start processes are nested deeper than `max_depth` allows. A \
                    pool in a `static` is made again in each process that uses it: make it where \
                    only one process does, or raise `FIBER_MAX_DEPTH`"
            .into());
    };
    if levels < FEW_LEVELS {
        WARN.call_once(|| {
            tracing::warn!(
                "workers start workers of their own: {levels} more levels of processes may follow \
                 (`max_depth`). A pool in a `static` is made again in each process that uses it"
            );
        });
    }
    Ok(levels)
}

/// Starts a child process, and waits until it works.
///
/// # Errors
/// The exit of a process that could not be created, or that ended before it was ready.
pub(crate) async fn launch(runtime: &'static Runtime, launch: Launch) -> Result<Launched, Exit> {
    let began = Instant::now();
    let config = &runtime.endpoint.config;
    let levels_below = levels_below(config).map_err(not_started)?;
    let address = runtime.listen().await.map_err(|error| not_started(error.to_string()))?;
    time_limit::watch(runtime);
    let (place, hosted, machine, processes) = match launch.kind {
        JobKind::Process(group) => {
            let hosted = runtime.uses_hosts(&group).await?.then_some(group);
            let place = runtime.interface.map_or(ChildPlace::Alone, ChildPlace::InHost);
            (place, hosted, None, 1)
        }
        JobKind::Host { machine, processes } => (ChildPlace::Host, None, machine, processes),
    };
    let id = ProcessId::random();
    let connection = expect_child(id);
    let (parent_pid, max_lag) = match address.locality {
        Locality::Child => (Some(std::process::id().cast_signed()), MAX_LAG),
        Locality::Remote => (None, MAX_LAG_REMOTE),
    };
    let parent = runtime.endpoint.id;
    let mut child_config = if hosted.is_some() || place == ChildPlace::Host {
        let mut beside = beside_host(config);
        if address.locality == Locality::Remote && !runtime.hosts.have_machines() {
            // The container has the GPUs that its engine gives to it, and counts them from 0. A
            // process in it has those that the host lets it see.
            let count = launch.meta.gpu.unwrap_or(0);
            beside.gpus = hosted.is_none().then(|| (0..count).map(|gpu| gpu.to_string()).collect());
        }
        beside
    } else {
        config.clone()
    };
    child_config.max_depth = levels_below;
    if place != ChildPlace::Host || !runtime.hosts.have_machines() {
        // A container's interfaces are not those of machines.
        child_config.interface = None;
    }
    let address = address.url.clone();
    let info = ParentInfo { id, parent, parent_pid, listener: parent, place, address };
    let name = launch.name.clone();
    let spec = JobSpec {
        name: launch.name,
        arguments: std::env::args_os().skip(1).collect(),
        environment: vec![(variables::PARENT, info.to_string())],
        secrets: vec![(variables::KEY, runtime.endpoint.key.reveal())],
        restarts: launch.restarts,
        meta: launch.meta,
        output: launch.output,
        log_dir: config.log_dir.clone(),
        machine,
        processes,
    };
    let hosted =
        hosted.map(|group| runtime.create_hosted(id, group, spec.clone(), launch.retry_creation));
    let (job, max_lag): (Arc<dyn Job>, _) = match &hosted {
        Some(job) => (Arc::clone(job) as Arc<dyn Job>, MAX_LAG_REMOTE),
        None => match creation::create(runtime, spec, launch.retry_creation).await {
            Ok(job) => (job, max_lag),
            Err(exit) => {
                unexpect_child(id);
                return Err(exit);
            }
        },
    };
    runtime.jobs.insert(id, Arc::clone(&job));
    runtime.children.add(id, name, launch.role, launch.restarts, Arc::clone(&job));
    let job_guard = JobGuard { runtime, id, max_lag, job };
    if is_exiting() {
        return Err(not_started("this program is about to end".into()));
    }
    let mut states = job_guard.job.states();
    let connected = Cell::new(false);
    let scheduling = launch.scheduling.as_deref();
    let start = ControlMessage::Start { config: Box::new(child_config), request: launch.request };
    let ready = readiness::wait(runtime, connection, start, &mut states, max_lag, &connected);
    let outcome = tokio::select! {
        biased;
        outcome = ready => outcome,
        problem = limits::exceeded(config, job_guard.job.states(), scheduling, &connected) => {
            Err(StartFailure::Unusable(problem))
        }
        problem = limits::not_accepted(runtime, job_guard.job.states(), &connected) => {
            Err(StartFailure::Unusable(problem))
        }
    };
    let failure = match outcome {
        Ok(Ready { info, connection, peer, address }) => {
            runtime.children.connected(&info, &connection.link);
            let (host, is_host_failing) = hosted.and_then(|job| job.host()).unzip();
            return Ok(Launched {
                info,
                connection,
                address,
                host,
                is_host: place == ChildPlace::Host,
                is_failing: Arc::default(),
                is_host_failing,
                peer,
                job_guard,
            });
        }
        Err(failure) => failure,
    };
    // If the child never connected and connections could not be accepted, that is the reason.
    let accept_failure = (!connected.get()).then(|| runtime.accept_failure_since(began)).flatten();
    let reason = match failure {
        StartFailure::EndedUnconnected(exit) => {
            return Err(failure::explain_early_end(exit, accept_failure));
        }
        // Perhaps in the middle of its work: the message that it is ready may be lost.
        StartFailure::Ended(exit) => return Err(monitor::explain_end(None, exit)),
        StartFailure::Unusable(problem) => ExitReason::NotStarted(
            accept_failure.map_or(problem, |problem| failure::not_accepted(&problem)),
        ),
        StartFailure::Silent => ExitReason::HeartbeatLost(config.heartbeat_timeout),
    };
    // Its last output explains more, and comes with its end.
    job_guard.job.kill();
    let exit = timeout(MAX_LAG, monitor::ended(&mut states)).await;
    Err(Exit::new(reason, exit.map(|exit| exit.tail).unwrap_or_default()))
}
