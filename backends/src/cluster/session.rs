//! What there is to say of a session, and to do with it.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::SystemTime;

use bytes::Bytes;
use fiber_core::{Meta, Result};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;

use super::volume::{Volume, VolumeMount};
use crate::progress::Progress;

/// A place where sessions run.
pub trait Cluster: Debug {
    /// What it calls that in which one process runs: `container`, `pod`.
    fn unit(&self) -> &'static str;

    /// Starts a session's head, once its image is where it can be run from. If this is dropped
    /// before it is done, [`Cluster::remove_session`] removes what came of it.
    ///
    /// # Errors
    /// [`Error::Start`](fiber_core::Error::Start), with what the user can do.
    fn start<'a>(
        &'a self,
        run: &'a RunRequest,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<()>>;

    /// Removes what there is of the sessions of this id.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn remove_session<'a>(&'a self, session: &'a str) -> LocalBoxFuture<'a, Result<()>>;

    /// All processes of all sessions, heads that run on this host among them.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>>;

    /// What a process prints, from its beginning on or the last `tail` lines; with `follow` until
    /// its end.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn logs<'a>(
        &'a self,
        name: &'a str,
        follow: bool,
        tail: Option<u64>,
    ) -> LocalBoxFuture<'a, Result<LocalBoxStream<'a, Result<OutputChunk>>>>;

    /// Waits for the end of a process that [`Cluster::start`] started.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), also if it was removed.
    fn wait<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>>;

    /// Asks a process to end, and kills it if it has not within `grace` seconds. It is done when it
    /// has ended. One that is gone is fine.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn stop<'a>(&'a self, name: &'a str, grace: u32) -> LocalBoxFuture<'a, Result<()>>;

    /// Kills a process if it still runs, and removes what is left of it. One that is gone is fine.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>>;

    /// Removes what is left of sessions whose head has ended, the heads that [`Cluster::start`]
    /// started among it, and says what that was.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System).
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>>;

    /// Opens a volume for reading and writing from here. What has it mounted meanwhile belongs to
    /// the session of this id: [`Cluster::remove_session`] has to be called in the end, whatever happens.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), also if there is none of this name.
    fn volume<'a>(
        &'a self,
        claim: &'a str,
        session: &'a str,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Box<dyn Volume + 'a>>>;
}

/// A session to be.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Its id, which no other has.
    pub session: String,
    /// What its head is to be called.
    pub name: String,
    /// Where the program comes from.
    pub source: ProgramSource,
    /// The program and its arguments as they are called in the image. Without any, the image says
    /// it.
    pub command: Vec<String>,
    /// The resources that the head is to have.
    pub meta: Meta,
    /// What is mounted into all of its processes.
    pub volumes: Vec<VolumeMount>,
    /// Variables of the head.
    pub environment: Vec<(String, String)>,
}

impl RunRequest {
    /// What its head is to its program: the program's name.
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

/// Where a program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    /// An executable of this host, which is put into an image of its own; `command` has its
    /// arguments only.
    Executable(PathBuf),
    /// An image of this name.
    Image(String),
    /// An image that is built as this file says, in the directory that it is in.
    Dockerfile(PathBuf),
}

/// A process of a session.
#[derive(Clone, Debug)]
pub struct SessionProcess {
    /// What it can be told from all others by.
    pub name: String,
    /// What it is to its program: `pool-1/worker-2`; the program's name for the head.
    pub role: String,
    /// The process that started it. Without one, it is the session's head.
    pub parent: Option<String>,
    /// Where it runs.
    pub location: Location,
    /// What it is doing.
    pub state: ProcessState,
    /// How often it was started again, under this role, before.
    pub restarts: u64,
    /// The resources that it has for itself.
    pub meta: Meta,
    /// When it was started.
    pub started_at: Option<SystemTime>,
}

/// Where a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the cluster.
    Cluster,
    /// On a host, outside of the cluster: it can be shown, and not be acted on.
    Host,
}

/// What a process is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It was not started yet; perhaps it is known what it waits for.
    Starting(Option<String>),
    /// It runs.
    Running,
    /// It stands still, because somebody paused it.
    Paused,
    /// It has ended.
    Ended(ExitStatus),
    /// It is gone, and nobody knows how it ended.
    Gone,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// Its exit code; 128 and the signal's number if one killed it.
    pub code: i32,
    /// What is known beyond that: `out of memory`.
    pub reason: Option<String>,
}

/// A piece of what a process prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputChunk {
    /// On its standard output.
    Stdout(Bytes),
    /// On its standard error.
    Stderr(Bytes),
}
