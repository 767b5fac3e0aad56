//! Where fiber's processes run.
//!
//! A [`Backend`] creates jobs; a [`Job`] is one process of the program, in whatever the backend
//! runs it. What is common to all backends is promised here, and tested for each by
//! `tests/conformance.rs`:
//! - a job's states come as a stream, and end with [`JobState::Ended`], once, after all that the
//!   process printed has been passed on;
//! - its [`Exit`] says in full what happened: exit code, signal, out of memory, or why it never
//!   ran;
//! - [`Job::kill`] also ends what the job's process started, and takes effect however far the job's
//!   start has come;
//! - a job whose parent is gone ends by itself. What dead sessions may have left is found by its
//!   labels, and removed, when the next one begins.

#[cfg(feature = "docker")]
pub mod cluster;
#[cfg(feature = "docker")]
mod docker;
#[cfg(feature = "docker")]
mod error_chain;
mod gpus;
#[cfg(feature = "docker")]
mod job_handle;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod local;
#[cfg(feature = "docker")]
mod mounts;
mod oom;
mod output;
#[cfg(feature = "docker")]
mod owner;
#[cfg(feature = "docker")]
mod progress;
#[cfg(feature = "docker")]
mod single_flight;

use std::ffi::OsString;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use fiber_core::{Config, Error, Exit, LinkKind, Meta, OutputMode, Result};
use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;

#[cfg(feature = "docker")]
pub use docker::{Docker, DockerCluster};
#[cfg(feature = "kubernetes")]
pub use kubernetes::Kubernetes;
pub use local::{Local, run_if_guard};
pub use output::{flush, flush_within, set_print_wrapper};
#[cfg(feature = "docker")]
pub use progress::{Progress, Step};

/// What is to run.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// A name for people: in process lists, logs and errors.
    pub name: String,
    /// What the program is called with.
    pub arguments: Vec<OsString>,
    /// Variables that the process gets on top of what its backend gives to all.
    pub environment: Vec<(&'static str, String)>,
    /// The same, for what is nobody else's business: it stands on no command line, and in no
    /// description of the job that others may read, as far as the backend can help it. Where the
    /// process finds `-` as the value, the value is the next line of its standard input: see
    /// [`fiber_core::secrets::read_secret`].
    pub secrets: Vec<(&'static str, String)>,
    /// How often it was started again, under its name, before.
    pub restarts: u64,
    /// The resources that it is to have.
    pub meta: Meta,
    /// Where its output goes.
    pub output: OutputMode,
    /// The directory of [`OutputMode::File`].
    pub log_dir: PathBuf,
}

/// Where a node has to listen so that its jobs reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// What carries the messages.
    pub link: LinkKind,
    /// The address to listen at.
    pub bind: IpAddr,
    /// The host name or address that jobs are told, if it is another.
    pub advertised: Option<String>,
    /// Whether jobs are children of this process in the eyes of the system.
    pub locality: Locality,
}

/// What a job is to this process in the eyes of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// Its child, so that the kernel ends it with this process.
    Child,
    /// A stranger, in another container or on another host.
    Remote,
}

/// Runs jobs. Its methods are called on the node's thread.
pub trait Backend: Debug + Send + Sync {
    /// Its name, as configuration has it.
    fn name(&self) -> &'static str;

    /// Where this node has to listen.
    ///
    /// # Errors
    /// [`Error::System`], with what the user can do.
    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>>;

    /// Starts the program again as a new job. What takes its time once for all jobs (to make or
    /// fetch an image) is done when this returns; the job's own start may still be under way.
    ///
    /// # Errors
    /// [`Error::Start`], with what the user can do.
    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>>;

    /// Removes what dead sessions left behind, and says what that was. A backend does so by itself
    /// before its first job.
    ///
    /// # Errors
    /// [`Error::System`], with what the user can do.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>>;
}

/// A process of the program.
pub trait Job: Debug + Send + Sync {
    /// Where it runs, for people: `pid 4711`, `container fiber-…`.
    fn place(&self) -> String;

    /// Its states, from the current one on.
    fn states(&self) -> watch::Receiver<JobState>;

    /// Asks it to end (SIGTERM).
    fn terminate(&self);

    /// Ends it and all that it started, at once (SIGKILL). Any thread may call it, also while this
    /// process exits.
    fn kill(&self);
}

/// What a job is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It is being started.
    Starting,
    /// It can't be started yet.
    Waiting(WaitReason),
    /// Its process runs.
    Running,
    /// Its process is gone.
    Ended(Exit),
}

/// What a job waits for before it can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Room: nowhere is there enough of what it asks for. The cluster's words.
    Resources(String),
    /// Its container to be made, for which the image may have to be fetched first. The cluster's
    /// words.
    Image(String),
}

/// The backend that the configuration names.
///
/// # Errors
/// [`Error::Config`], which names those that exist.
pub fn backend(config: &Config) -> Result<Arc<dyn Backend>> {
    match config.backend.as_str() {
        "local" => Ok(Arc::new(Local::new(config))),
        #[cfg(feature = "docker")]
        "docker" => Ok(Arc::new(Docker::new(config)?)),
        #[cfg(not(feature = "docker"))]
        "docker" => Err(Error::missing_feature("the backend `docker`", "docker")),
        #[cfg(feature = "kubernetes")]
        "kubernetes" => Ok(Arc::new(Kubernetes::new(config)?)),
        #[cfg(not(feature = "kubernetes"))]
        "kubernetes" => Err(Error::missing_feature("the backend `kubernetes`", "kubernetes")),
        other => Err(Error::Config(format!(
            "there is no backend `{other}`: set `backend` (or FIBER_BACKEND) to `local`, `docker` or `kubernetes`, or \
             leave it out"
        ))),
    }
}

impl ListenAddress {
    /// From processes of this host only.
    fn host_only(link: LinkKind, locality: Locality) -> ListenAddress {
        ListenAddress { link, bind: Ipv4Addr::LOCALHOST.into(), advertised: None, locality }
    }
}

/// The variables that the configuration wants for containers.
#[cfg(feature = "docker")]
fn configured_environment(config: &Config) -> impl Iterator<Item = (String, String)> {
    config.environment.iter().filter_map(|variable| match variable.split_once('=') {
        Some((name, value)) => Some((name.to_string(), value.to_string())),
        None => std::env::var(variable).ok().map(|value| (variable.clone(), value)),
    })
}
