//! The types that describe a session, and the operations on it.

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fiber_core::stats::JobPlace;
use fiber_core::{Meta, Result};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use tokio::io::{AsyncRead, AsyncWrite};

use super::options::OptionValues;
use super::volume::{Volume, VolumeMount};
use crate::progress::Progress;

/// A place where sessions run: this host, a Docker engine, a namespace of a Kubernetes cluster, or
/// a Slurm cluster.
pub trait Cluster: Debug {
    /// Returns what one process runs in: `container`, `pod`, `job`.
    fn unit(&self) -> &'static str;

    /// Returns whether a program of this host that starts its children by `backend` counts as one
    /// of this cluster's sessions.
    fn includes(&self, backend: &str) -> bool;

    /// Returns whether [`Cluster::processes`] has the processes below heads. If not, only their
    /// heads know them: see [`Cluster::inspect`].
    fn lists_children(&self) -> bool {
        true
    }

    /// Starts a session's head, after building, pushing or pulling its image. If the future is
    /// dropped before it is ready, call [`Cluster::remove_session`] to remove what it created.
    ///
    /// # Errors
    /// [`Error::Start`](fiber_core::Error::Start), with what the user can do.
    fn start<'a>(
        &'a self,
        run: &'a RunRequest,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Started>>;

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

    /// Returns the heads that can be asked by [`Cluster::inspect`], and the problems with those
    /// that do not even say which session they have.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn heads(&self) -> LocalBoxFuture<'_, Result<Vec<Result<SessionHead, String>>>> {
        Box::pin(async {
            let processes = self.processes().await?.into_iter();
            let heads = processes.filter(|process| {
                process.parent.is_none()
                    && process.location == Location::Cluster
                    && process.state == ProcessState::Running
            });
            let head = |process: SessionProcess| {
                let (name, inspector) = (process.name.clone(), process.name);
                Ok(SessionHead { name, inspector, pid: None })
            };
            Ok(heads.map(head).collect())
        })
    }

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

    /// Returns the output of a session, as [`Cluster::logs`] does, without asking the engine
    /// first: `None` if this machine has no file of it.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn logs_at_hand<'a>(
        &'a self,
        _name: &'a str,
        _follow: bool,
        _tail: Option<u64>,
    ) -> Result<Option<LocalBoxStream<'a, Result<OutputChunk>>>> {
        Ok(None)
    }

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

    /// Keeps the output of a process that has ended, if it is in files and somebody may need them:
    /// its exit code is not 0, or what they have is not in [`Cluster::logs`]. Removes all else that
    /// the process has left. Returns the paths; without any, call [`Cluster::remove`].
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn keep_output<'a>(
        &'a self,
        name: &'a str,
        code: i32,
    ) -> LocalBoxFuture<'a, Result<Vec<PathBuf>>> {
        let _ = (name, code);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Removes the leftovers of sessions whose head has ended, including heads that
    /// [`Cluster::start`] started. Returns the names of what it removed.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>>;

    /// Connects to the inspector of a head, which [`SessionHead::inspector`] names. Where this
    /// process can't reach its socket, it runs the head's program beside it as a bridge.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System): the rights are missing, the head does not run,
    /// or its program does not use fiber.
    fn inspect<'a>(&'a self, inspector: &'a str)
    -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>>;

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
    /// Environment variables of the head: the settings of this configuration, and `given`.
    pub environment: Vec<(String, String)>,
    /// The environment variables that the command line gives.
    pub given: Vec<(String, String)>,
    /// How many times the engine starts the head again if it is lost or fails.
    pub restarts: u32,
    /// Whether the caller follows it: else the start returns while the head waits for room.
    pub attach: bool,
    /// The options of this backend alone: see [`SessionBackend`](super::SessionBackend).
    pub options: OptionValues,
}

/// The result of [`Cluster::start`].
#[derive(Debug)]
pub enum Started {
    /// The engine runs the head.
    Elsewhere,
    /// The head is a program of this host: the caller becomes it, or runs it and starts it again.
    Here(Command),
    /// An option asks for a description only: this one.
    Described(String),
}

/// A head whose inspector can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHead {
    /// The name of its session: see [`SessionProcess::name`].
    pub name: String,
    /// The argument of [`Cluster::inspect`] for it. It is unique.
    pub inspector: String,
    /// Its pid, if it is a process of this host.
    pub pid: Option<u32>,
}

impl RunRequest {
    /// Returns the head's role: the program's name.
    pub fn role(&self) -> String {
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
    /// Its name: that of the session for the head, else the one by which its parent calls it:
    /// `pool-1/worker-2`.
    pub name: String,
    /// The unique name that this [`Cluster`] has for it: its container, pod or job step; the
    /// session's name for a head.
    pub job: String,
    /// The name of the program of a head.
    pub program: Option<String>,
    /// The `job` of the process that started it; `None` for the session's head.
    pub parent: Option<String>,
    /// Where it runs: `container fiber-…-1`, `step 17.0`, `pid 4711`.
    pub place: JobPlace,
    /// The name of the machine on which it runs, where that is known.
    pub machine: Option<String>,
    /// The place where it runs.
    pub location: Location,
    /// Whether [`Cluster::logs`] has its output, apart from that of others.
    pub has_output: bool,
    /// Its current state.
    pub state: ProcessState,
    /// How many times a process of this role was restarted before.
    pub restarts: u64,
    /// The resource limits of this process.
    pub meta: Meta,
    /// The time when its process, container or pod was created.
    pub started_at: Option<SystemTime>,
    /// Its use of resources, where that is known.
    pub usage: Option<Usage>,
}

impl SessionProcess {
    /// Returns the running head of a session of this cluster, whose output [`Cluster::logs`] has.
    pub fn new(name: impl Into<String>, place: JobPlace) -> SessionProcess {
        let name = name.into();
        SessionProcess {
            job: name.clone(),
            name,
            program: None,
            parent: None,
            place,
            machine: None,
            location: Location::Cluster,
            has_output: true,
            state: ProcessState::Running,
            restarts: 0,
            meta: Meta::new(),
            started_at: None,
            usage: None,
        }
    }

    /// Returns the running process `job`. Its parent calls it `named`; a head has no parent, and
    /// `named` is its program.
    #[cfg(feature = "docker")]
    pub(crate) fn of_job(
        job: String,
        named: String,
        parent: Option<String>,
        place: JobPlace,
    ) -> SessionProcess {
        let (name, program) = match parent {
            None => (job.clone(), Some(named)),
            Some(_) => (named, None),
        };
        SessionProcess { job, program, parent, ..SessionProcess::new(name, place) }
    }
}

/// The resources that a process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// CPU time that it has used.
    pub cpu: Duration,
    /// Resident memory (RSS) in bytes.
    pub memory: u64,
    /// Proportional set size (PSS) in bytes, if its system tells it.
    pub pss: Option<u64>,
}

/// The place where a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a container, pod or job of the cluster, or as a program of this host if that is the
    /// cluster.
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
    /// It is paused. Carries the command that lets it go on: `qmod -usj 33`.
    Paused(String),
    /// It has ended.
    Ended(ExitStatus),
    /// It is gone without a known exit status.
    Gone,
    /// Its program does not answer. Carries the reason.
    Silent(String),
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
