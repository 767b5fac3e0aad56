//! Starts and watches fiber's processes: as child processes, Docker containers, Kubernetes pods, in
//! jobs of Slurm, or on machines that ssh reaches.
//!
//! A [`Backend`] creates jobs. A [`Job`] is one process of the program, together with the container
//! or pod that it runs in. All backends keep these promises, which `fiber-conformance` tests
//! for each:
//! - A job reports its states in order. The last one is [`JobState::Ended`], sent once, after fiber
//!   has forwarded all output of the process.
//! - Its [`Exit`] has the exit code, the signal, out of memory, or the reason why the process never
//!   ran.
//! - [`Job::kill`] also ends what the job's process started. It works at any point of the job's
//!   start.
//! - A job whose parent is gone ends by itself. The next session finds leftovers of dead sessions
//!   by their labels and removes them.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod error;

#[cfg(feature = "batch")]
pub mod batch;
mod catalogue;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "docker")]
mod docker;
#[cfg(any(feature = "docker", feature = "ssh"))]
mod elf;
#[cfg(feature = "docker")]
mod error_chain;
mod exit_code;
mod gpus;
#[cfg_attr(not(any(feature = "batch", feature = "shell")), path = "interface/none.rs")]
mod interface;
#[cfg(feature = "remote")]
#[allow(dead_code, reason = "not every backend uses all of it")]
mod job_handle;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "remote")]
#[allow(dead_code, reason = "not every backend uses all of it")]
mod listen;
mod local;
#[cfg(feature = "docker")]
mod mounts;
mod oom;
#[cfg(any(feature = "batch", feature = "docker"))]
mod outage;
mod output;
#[cfg(any(feature = "batch", feature = "docker"))]
mod owner;
#[cfg(feature = "cluster")]
mod progress;
#[cfg(feature = "remote")]
#[allow(dead_code, reason = "not every backend uses all of it")]
mod route;
mod sections;
#[cfg(feature = "shell")]
pub mod shell;
#[cfg(any(feature = "docker", feature = "slurm"))]
mod single_flight;
#[cfg(feature = "slurm")]
mod slurm;
#[cfg(feature = "ssh")]
mod ssh;

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "docker")]
use std::time::Duration;
use std::time::SystemTime;

use fiber_core::secrets::Secret;
pub use fiber_core::stats::JobPlace;
use fiber_core::{Address, Config, Exit, LinkKind, Meta, OutputMode, Result, variables};
pub use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use catalogue::{BackendEntry, backend, job_variables, register, run_if_helper};
#[cfg(feature = "docker")]
pub use docker::Docker;
pub use error::BackendError;
pub use exit_code::reason_of_code;
pub use interface::configured_interface;
#[cfg(feature = "kubernetes")]
pub use kubernetes::Kubernetes;
pub use local::Local;
pub use output::{
    ChildOutput, capture_in_tests, flush, flush_within, print_message, set_print_wrapper, warn,
};
#[cfg(feature = "cluster")]
pub use progress::{Progress, Step};
pub use sections::{DockerSection, KubernetesSection, SlurmSection, SshSection};

/// Time for the end of a process after `grace`, before its engine kills it.
#[cfg(feature = "docker")]
const PROCESS_END: Duration = Duration::from_secs(5);
/// Time for the end of a head after `grace`. It ends its children first.
#[cfg(feature = "docker")]
const HEAD_END: Duration = Duration::from_secs(25);

/// The description of a job to start.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// A name for process lists, logs and errors.
    pub name: String,
    /// The program's arguments.
    pub arguments: Vec<OsString>,
    /// The way to its parent, for the variable `FIBER_PARENT`.
    pub parent: Option<Parent>,
    /// Environment variables of this process, in addition to those that the backend sets for all.
    /// [`JobSpec::variables`] returns them with that of the parent.
    pub environment: Vec<(&'static str, String)>,
    /// Environment variables with secret values. The values stand on no command line, and in no job
    /// description that others may read, as far as the backend can prevent it. Where the process
    /// finds `-` as the value, the value is the next line of its standard input: see
    /// [`fiber_core::secrets::read_secret`].
    pub secrets: Vec<(&'static str, Secret)>,
    /// How many times a process of this name was restarted before.
    pub restarts: u64,
    /// The resources that it gets. They are its limits, too.
    pub meta: Meta,
    /// The destination of its output.
    pub output: ChildOutput,
    /// The directory for the log file of [`OutputMode::File`].
    pub log_dir: PathBuf,
    /// The machine of [`Backend::machines`] on which it runs; `None` for backends without.
    pub machine: Option<String>,
    /// How many processes the job is for: more than one if it is a host.
    pub processes: usize,
}

/// The way from a process to its parent. Its text is `IDENTITY,ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The text by which the parent's runtime knows the pair of both processes.
    pub identity: String,
    /// The address at which the parent listens.
    pub address: Address,
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.identity, self.address)
    }
}

impl JobSpec {
    /// Returns the description of a job for one process without arguments, requests and output.
    pub fn new(name: impl Into<String>) -> JobSpec {
        JobSpec {
            name: name.into(),
            arguments: Vec::new(),
            parent: None,
            environment: Vec::new(),
            secrets: Vec::new(),
            restarts: 0,
            meta: Meta::new(),
            output: OutputMode::Null.into(),
            log_dir: PathBuf::new(),
            machine: None,
            processes: 1,
        }
    }

    /// Returns the program's arguments as text.
    #[cfg(any(feature = "batch", feature = "docker"))]
    fn arguments_as_text(&self) -> Vec<String> {
        self.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    /// Returns the environment variables of this process that are no secrets.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let parent = self.parent.iter().map(|parent| (variables::PARENT, parent.to_string()));
        parent.chain(self.environment.iter().cloned())
    }

    /// Returns all environment variables of this process, as others may see them: a secret is `-`.
    fn shown_variables(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.variables().chain(self.secrets.iter().map(|(name, _)| (*name, "-".to_string())))
    }

    /// Returns the values of the secrets, one a line, as the process reads them from its standard
    /// input.
    pub fn secret_lines(&self) -> String {
        self.secrets.iter().map(|(_, value)| format!("{}\n", value.reveal())).collect()
    }

    /// Returns the remedy for a request that can't be granted because several processes share the
    /// job, as an appendix to messages. It is empty for a job of one process.
    fn shared_job_remedy(&self) -> String {
        match self.processes {
            0 | 1 => String::new(),
            count => {
                format!(
                    "; {count} processes share this job: a lower `processes_per_job` asks for less"
                )
            }
        }
    }
}

/// A machine for processes. They run in one job of the program there, their host.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name, for [`JobSpec::machine`] and messages.
    pub name: String,
    /// The room for processes that the configuration or the engine grants there. `None` if only
    /// the machine itself knows: then its host says it.
    pub room: Option<Room>,
}

/// The resources for processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Room {
    /// Processor cores.
    pub cpu: f64,
    /// Memory in bytes; `None` if it is not limited.
    pub memory: Option<u64>,
    /// Graphics processors; `u32::MAX` if only the machine itself knows their number.
    pub gpu: u32,
}

/// The address at which a process has to listen for its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The transport of the links.
    pub link: LinkKind,
    /// The local address to bind to.
    pub bind: IpAddr,
    /// The host name or address that jobs connect to, if it differs from `bind`.
    pub advertised: Option<String>,
    /// Whether the jobs are child processes of this process.
    pub locality: Locality,
}

/// The relation of a job's process to this process in the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// A child process: the kernel ends it with this process.
    Child,
    /// A process in another container or on another host.
    Remote,
}

/// Starts jobs. Call its methods on fiber's thread only: they spawn local tasks there.
pub trait Backend: Debug + Send + Sync {
    /// Returns the name that selects it in the configuration.
    fn name(&self) -> &'static str;

    /// Returns the address at which this process has to listen for its jobs.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), with what the user can do.
    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>>;

    /// Starts the program again as a new job. Work that all jobs share, such as building or pulling
    /// an image, is done when this returns. The job's own start may still be in progress.
    ///
    /// # Errors
    /// [`Error::Start`](fiber_core::Error::Start), with what the user can do.
    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>>;

    /// Returns the machines for this program's processes, if each job is to be the host of a
    /// machine. `None`: the engine finds a place for each job. Once a host runs on a machine, its
    /// processes need no further job.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), with what the user can do.
    fn machines(&self) -> LocalBoxFuture<'_, Result<Option<Vec<Machine>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns one more machine than before, for processes that found no room for `meta`. `None` if
    /// there are no more. A job for it may wait until it exists.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), with what the user can do.
    fn another_machine<'a>(
        &'a self,
        _meta: &'a Meta,
    ) -> LocalBoxFuture<'a, Result<Option<Machine>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns how many processes a pool or ring has by default: one for each core of the machines,
    /// as far as that is known without asking them. `None`: one for each core of this machine.
    fn default_processes(&self) -> Option<usize> {
        None
    }

    /// Returns when the engine will end this process with all of its jobs, as far as that is known.
    fn ends_at(&self) -> Option<SystemTime> {
        None
    }

    /// Removes leftovers of dead sessions and returns their names. A backend does so by itself
    /// before its first job.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System), with what the user can do.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>>;
}

/// A running process of the program, with the container or pod around it.
pub trait Job: Debug + Send + Sync {
    /// Returns where it runs: `pid 4711`, `container fiber-…`.
    fn place(&self) -> JobPlace;

    /// Returns the last lines of its output, oldest first. With
    /// [`OutputMode::File`] there are none before its end.
    fn tail(&self) -> Vec<String>;

    /// Returns a receiver of its states, from the current one on.
    fn states(&self) -> watch::Receiver<JobState>;

    /// Asks the process to end, by SIGTERM.
    fn terminate(&self);

    /// Ends the process and all that it started, at once (SIGKILL). Any thread may call this, also
    /// while this process exits.
    fn kill(&self);
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// The host in which it will run starts, which has time limits of its own.
    AwaitsHost,
    /// The backend starts it.
    Starting,
    /// It can't start yet.
    Waiting(WaitReason),
    /// Its process runs.
    Running,
    /// Its process has ended.
    Ended(Exit),
}

/// The reason why a job can't start yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// No node has enough free resources for it. Carries the scheduler's message.
    Resources(String),
    /// It has a node, which has not begun to start it. Carries the node's name, and the last event.
    Node(String),
    /// Its container does not exist yet, perhaps because the image is still being pulled. Carries
    /// the node's message.
    Image(String),
}

impl WaitReason {
    /// Returns the message that it carries.
    pub fn message(&self) -> &str {
        match self {
            WaitReason::Resources(message)
            | WaitReason::Node(message)
            | WaitReason::Image(message) => message,
        }
    }
}

/// Returns the number of GPUs that processes beside this one may use.
pub fn gpu_count(config: &Config) -> u32 {
    let count = gpus::GpuAllocator::new(config).count().unwrap_or(0);
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl ListenAddress {
    /// Returns an address that processes in containers and on other machines reach.
    pub fn remote(bind: IpAddr, advertised: Option<String>) -> ListenAddress {
        ListenAddress { link: LinkKind::remote(), bind, advertised, locality: Locality::Remote }
    }

    /// Returns the loopback address, which only processes of this host reach.
    fn host_only(link: LinkKind, locality: Locality) -> ListenAddress {
        ListenAddress { link, bind: Ipv4Addr::LOCALHOST.into(), advertised: None, locality }
    }
}

/// Returns the environment variables that the configuration sets for containers, and for processes
/// on other machines.
pub fn configured_environment(config: &Config) -> impl Iterator<Item = (String, String)> {
    config.environment.iter().filter_map(|variable| match variable.split_once('=') {
        Some((name, value)) => Some((name.to_string(), value.to_string())),
        None => std::env::var(variable).ok().map(|value| (variable.clone(), value)),
    })
}

/// Returns the name of a program's file, also if the file was deleted since the program's start.
#[cfg(any(feature = "docker", feature = "ssh"))]
fn program_name(path: &std::path::Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(" (deleted)").to_string()
}
