//! The types that describe a session, and the operations on it.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fiber_core::{Meta, Result};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use tokio::io::{AsyncRead, AsyncWrite};

use super::volume::{Volume, VolumeMount};
use crate::progress::Progress;

/// A place where sessions run: a Docker engine, a namespace of a Kubernetes cluster, or a Slurm
/// cluster.
pub trait Cluster: Debug {
    /// Returns what one process runs in: `container`, `pod`, `job`.
    fn unit(&self) -> &'static str;

    /// Starts a session's head, after building, pushing or pulling its image. If the future is
    /// dropped before it is ready, call [`Cluster::remove_session`] to remove what it created.
    ///
    /// # Errors
    /// [`Error::Start`](fiber_core::Error::Start), with what the user can do.
    fn start<'a>(
        &'a self,
        run: &'a RunRequest,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<()>>;

    /// Removes all containers or pods of the session.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn remove_session<'a>(&'a self, session: &'a str) -> LocalBoxFuture<'a, Result<()>>;

    /// Returns all processes of all sessions, including heads that run on this host.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>>;

    /// Returns the output of a process, from its beginning or the last `tail` lines; with `follow`
    /// until the process ends. The output of a head that was started again is that of all its
    /// starts, as far as the engine still has it.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn logs<'a>(
        &'a self,
        name: &'a str,
        follow: bool,
        tail: Option<u64>,
    ) -> LocalBoxFuture<'a, Result<LocalBoxStream<'a, Result<OutputChunk>>>>;

    /// Waits for the end of a process that [`Cluster::start`] started, after which it is not
    /// started again.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), also if it was removed.
    fn wait<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>>;

    /// Asks a process to end, and kills it after `grace` seconds. Returns when it has ended. It is
    /// not started again. A process that does not exist is no error.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn stop<'a>(&'a self, name: &'a str, grace: u32) -> LocalBoxFuture<'a, Result<()>>;

    /// Kills a process if it still runs, and removes its container or pod. A process that does not
    /// exist is no error.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>>;

    /// Removes the leftovers of sessions whose head has ended, including heads that
    /// [`Cluster::start`] started. Returns the names of what it removed.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>>;

    /// Connects to the inspector of a head, by running its program there as a bridge.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System): the rights are missing, the head does not run,
    /// or its program does not use fiber.
    fn inspect<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>>;

    /// Opens a volume for reading and writing from here. A container or pod of session `session`
    /// mounts it meanwhile: call [`Cluster::remove_session`] in the end, also after an error.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), also if no volume of this name exists.
    fn volume<'a>(
        &'a self,
        claim: &'a str,
        session: &'a str,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Box<dyn Volume + 'a>>>;
}

/// A stream of bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// A request to start a session.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The unique id of the session.
    pub session: String,
    /// The name of the head's container or pod.
    pub name: String,
    /// The source of the program.
    pub source: ProgramSource,
    /// The program and its arguments as paths in the image. If it is empty, the image's own command
    /// runs.
    pub command: Vec<String>,
    /// The resources of the head.
    pub meta: Meta,
    /// The volumes that all of its processes mount.
    pub volumes: Vec<VolumeMount>,
    /// Environment variables of the head.
    pub environment: Vec<(String, String)>,
    /// How many times the engine starts the head again if it is lost or fails.
    pub restarts: u32,
    /// The machines of the session on Slurm.
    pub allocation: Allocation,
}

/// A request for machines to a cluster that queues jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The number of nodes; one without.
    pub nodes: Option<u32>,
    /// The time limit; the partition's without.
    pub time: Option<Duration>,
    /// The partition.
    pub partition: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// Generic resources of each node.
    pub gres: Option<String>,
    /// Options of `sbatch` as they are.
    pub options: Vec<String>,
}

#[cfg(feature = "docker")]
impl RunRequest {
    /// Returns the head's role: the program's name.
    pub(crate) fn role(&self) -> String {
        let program = match &self.source {
            ProgramSource::Executable(path) => {
                path.file_name().map(|name| name.to_string_lossy().into_owned())
            }
            ProgramSource::Image(name) => self.command.first().or(Some(name)).cloned(),
            ProgramSource::Dockerfile(_) => self.command.first().cloned(),
        };
        let program = program.unwrap_or_else(|| "program".into());
        program.rsplit_once('/').map_or(program.as_str(), |(_, name)| name).to_string()
    }
}

/// The source of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    /// An executable of this host. Fiber builds an image of it; `command` has its arguments only.
    Executable(PathBuf),
    /// The image of this name.
    Image(String),
    /// An image built from this Dockerfile, with its directory as the build context.
    Dockerfile(PathBuf),
}

/// A process of a session, as `fiber ps` shows it.
#[derive(Clone, Debug)]
pub struct SessionProcess {
    /// The name of its container or pod; `pid N` for a head on a host.
    pub name: String,
    /// Its role in the program: `pool-1/worker-2`; the program's name for the head.
    pub role: String,
    /// The name of the process that started it; `None` for the session's head.
    pub parent: Option<String>,
    /// The place where it runs.
    pub location: Location,
    /// Its current state.
    pub state: ProcessState,
    /// How many times a process of this role was restarted before.
    pub restarts: u64,
    /// The resource limits of this process.
    pub meta: Meta,
    /// The time when its container or pod was created.
    pub started_at: Option<SystemTime>,
    /// What it uses, where that is known.
    pub usage: Option<Usage>,
}

/// What a process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// CPU time that it has used.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub memory: u64,
}

/// The place where a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a container or pod of the cluster.
    Cluster,
    /// On a host, outside of the cluster: fiber can show it, but can't act on it.
    Host,
}

/// The state of a process of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It has not started yet. Carries the reason if it is known.
    Starting(Option<String>),
    /// It runs.
    Running,
    /// It is paused.
    Paused,
    /// It has ended.
    Ended(ExitStatus),
    /// It is gone without a known exit status.
    Gone,
}

/// The exit status of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// The exit code; 128 plus the signal's number if a signal killed it.
    pub code: i32,
    /// The reason, if one is known: `out of memory`.
    pub reason: Option<String>,
}

/// A chunk of a process's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputChunk {
    /// From its standard output.
    Stdout(Bytes),
    /// From its standard error.
    Stderr(Bytes),
}
