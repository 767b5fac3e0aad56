//! The configuration: code overrides environment, which overrides the file.

mod found;
mod load;
mod names;
mod page;
mod problem;
mod section;
mod sources;
#[cfg(test)]
mod tests;
pub mod values;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

pub use self::names::nearest;
pub use self::problem::{ConfigProblem, ConfigSource};
use self::section::Sections;
pub use self::section::{Section, SectionEntry, SectionKey, SectionTable};
use self::values::{address, duration, lenient, optional_size, size};
use crate::spin;

/// The prefix of the options' environment variables.
const PREFIX: &str = "FIBER_";

/// An option as its documentation shows it.
struct ConfigOption {
    name: &'static str,
    /// The doc comment of the field, with its line breaks.
    documentation: &'static str,
}

/// Defines [`Config`], its defaults and [`GROUPS`] from one list of options.
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct Config {
            $($title:literal => {
                $(
                    $(#[doc = $documentation:literal])+
                    $(#[serde($($serde:tt)*)])?
                    $name:ident: $type:ty = $default:expr,
                )+
            })+
        }
    ) => {
        $(#[$attribute])*
        pub struct Config {
            $($(
                $(#[doc = $documentation])+
                $(#[serde($($serde)*)])?
                pub $name: $type,
            )+)+
            /// The options of sections.
            #[serde(default)]
            sections: Sections,
        }

        impl Default for Config {
            fn default() -> Config {
                Config {
                    $($($name: $default,)+)+
                    sections: Sections::default(),
                }
            }
        }

        /// All options outside of sections, in the groups of the documentation.
        const GROUPS: &[(&str, &[ConfigOption])] = &[$(($title, &[
            $(ConfigOption {
                name: stringify!($name),
                documentation: concat!($($documentation, "\n"),+),
            },)+
        ]),)+];
    };
}

options! {
    /// The configuration of a program's processes. Children receive their parent's.
    ///
    /// Fiber takes each value from the code ([`Config::set`], builders), else from the environment
    /// (`FIBER_` and the field's name in capitals), else from `fiber.toml` in the working directory
    /// or the nearest one above it (or the file that `FIBER_CONFIG` names), else it uses the
    /// default. Unknown names are errors.
    ///
    /// Options of one backend are in its section: `[slurm]` in the file, [`Config::section`] and
    /// [`Config::edit`] in code.
    ///
    /// Durations are written as `500ms`, `10s` or `2m`, sizes as `64KiB` or `1GiB`.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// fiber::Config::set(|config| config.processes = 2);
    /// assert_eq!(fiber::Config::load()?.processes, 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[non_exhaustive]
    pub struct Config {
        "Processes" => {
            /// The backend that starts processes: `local`, `docker`, `kubernetes`, `slurm`,
            /// `gridengine` or `ssh`.
            backend: String = "local".into(),
            /// The transport between processes: `unix` (one host) or `nng` (TCP). Processes in
            /// containers always use nng.
            link: LinkKind = LinkKind::Unix,
            /// The number of workers of a pool that sets none. 0 is one worker for each CPU core,
            /// of all machines if the backend has some.
            processes: usize = 0,
            /// How many processes share a job: a container, a pod, or with `local` a process group.
            /// Backends that have machines, as Slurm does, always have one job a machine.
            processes_per_job: usize = 1,
            /// How many levels of processes there may be below this one: 1 lets it start workers,
            /// and these none. At least 1 in a program's first process.
            max_depth: u32 = 8,
            /// How many processes there may be in a session below the children of its first
            /// process, which decides. Without one: 16 for each of its CPU cores.
            max_nested_processes: Option<usize> = None,
            /// Where the output of children goes: `inherit` (to the parent's output), `prefix` (the
            /// same, each line after the name of its process), `merge` (the same, and equal lines
            /// that come within 100 ms as one: `[32 workers] line`), `file` (one file for each
            /// process, in `log_dir`) or `null` (nowhere).
            output: OutputMode = OutputMode::Inherit,
            /// The directory for `output = "file"`. Fiber creates it if it is missing.
            log_dir: PathBuf = "fiber-logs".into(),
            /// The interval between two heartbeats of a child.
            #[serde(with = "duration")]
            heartbeat: Duration = Duration::from_secs(1),
            /// The time without a heartbeat after which a child counts as dead. At least twice
            /// `heartbeat`.
            #[serde(with = "duration")]
            heartbeat_timeout: Duration = Duration::from_secs(10),
            /// The time limit for a child to connect and to become ready.
            #[serde(with = "duration")]
            start_timeout: Duration = Duration::from_secs(60),
            /// The time limit for a child to get a place in the cluster, and for its node to begin,
            /// also while the engine is away. It does not count towards `start_timeout`. A pool
            /// with other workers that run waits for a place without limit.
            #[serde(with = "duration")]
            schedule_timeout: Duration = Duration::from_secs(300),
            /// The time limit for creating a child's container, including the image pull. It does
            /// not count towards `start_timeout`.
            #[serde(with = "duration")]
            pull_timeout: Duration = Duration::from_secs(600),
            /// The time limit for a child to stop, after which it is killed.
            #[serde(with = "duration")]
            shutdown_timeout: Duration = Duration::from_secs(5),
            /// How long a thread that waits for another process polls before it sleeps, while no
            /// other thread needs its core. `0s` turns it off.
            #[serde(with = "duration")]
            spin: Duration = spin::DEFAULT,
            /// The size limit of a message: one task's arguments, one result, one broadcast value.
            /// 4 KiB to 2 GiB.
            #[serde(with = "size")]
            max_message: ByteSize = ByteSize::gib(1),
            /// The limit of the arguments and results that one call of a pool stores in the process
            /// that made it.
            #[serde(with = "size")]
            call_buffer: ByteSize = ByteSize::mib(64),
            /// The limit of the memory that values take in one process: encoded arguments, results
            /// and elements of queues, and large arrays in shared memory. At the limit, calls wait,
            /// and elements of queues and outputs of tasks go to a file. Without one: half of the
            /// memory that the process can have.
            #[serde(with = "optional_size")]
            value_memory: Option<ByteSize> = None,
            /// The folder of that file, which has no name and ends with its process. Without one:
            /// `TMPDIR`, or `/var/tmp`.
            #[serde(deserialize_with = "lenient::path")]
            spill_dir: Option<PathBuf> = None,
            /// Whether a process writes large arrays, vectors of numbers and texts into shared
            /// memory, for other processes of its host. Otherwise their bytes are sent.
            shared_memory: bool = true,
            /// The file for the timeline: which worker ran what when, for <https://ui.perfetto.dev>
            /// or chrome://tracing. Without a name, nothing is recorded.
            #[serde(deserialize_with = "lenient::path")]
            timeline: Option<PathBuf> = None,
            /// The size limit of that file. The fuller it is, the longer short tasks are summed up.
            #[serde(with = "size")]
            timeline_size: ByteSize = ByteSize::mib(64),
            /// Whether SIGINT, SIGTERM and SIGHUP end the children before they end this process.
            signals: bool = true,
            /// The folder of the journals of durable calls: see `fiber::Journal`. Fiber creates it
            /// if it is missing.
            journals: PathBuf = "fiber-journals".into(),
            /// How long running tasks may go on after SIGTERM, before a worker ends, or a program
            /// with durable calls.
            #[serde(with = "duration")]
            grace: Duration = Duration::from_secs(25),
            /// The GPUs that workers may use, by index or id. Without a list: all that fiber finds.
            #[serde(deserialize_with = "lenient::optional_list")]
            gpus: Option<Vec<String>> = None,
        }
        "Observability" => {
            /// The address at which the head serves metrics to Prometheus: `127.0.0.1:9464`, or
            /// `0.0.0.0:9464` to reach it from other hosts. Without one: nowhere. Takes fiber's
            /// feature `metrics`.
            #[serde(with = "address")]
            metrics: Option<SocketAddr> = None,
        }
        "Containers and other machines" => {
            /// The image of containers. Without one: the image of this process's own container, or
            /// an image that fiber builds of this program and its libraries.
            image: Option<String> = None,
            /// Programs that tasks start, by their absolute paths: the image that fiber builds has
            /// them at these paths, with their libraries.
            #[serde(deserialize_with = "lenient::list")]
            bundle: Vec<String> = Vec::new(),
            /// The registry to which fiber pushes the images that it builds, as
            /// `HOST[:PORT][/PATH]`. Without one, a cluster's nodes have to share this host's
            /// Docker engine.
            registry: Option<String> = None,
            /// The path of the program in `image`, if the image's entry point is another program.
            program: Option<String> = None,
            /// The address at which this process listens for its children, if fiber can't find the
            /// right one.
            bind_host: Option<IpAddr> = None,
            /// The name or address by which children in containers and on other hosts reach this
            /// process, if it differs from the address at which it listens.
            advertised_host: Option<String> = None,
            /// The volumes of containers: `SOURCE:TARGET`, or `SOURCE:TARGET:ro` for read-only. The
            /// source is an absolute path or the name of a volume; on Kubernetes, of a claim.
            #[serde(deserialize_with = "lenient::list")]
            mounts: Vec<String> = Vec::new(),
            /// The environment variables of containers, and of processes on machines over ssh or in
            /// jobs of Grid Engine: `NAME=VALUE`, or `NAME` for the value in this process.
            #[serde(deserialize_with = "lenient::list")]
            environment: Vec<String> = vec!["RUST_LOG".into(), "RUST_BACKTRACE".into()],
            /// The user in containers, by name or number: `USER` or `USER:GROUP`. Without one: the
            /// image's user; in an image that fiber built, the user of this process.
            #[serde(deserialize_with = "lenient::text")]
            user: Option<String> = None,
            /// The working directory in containers, on machines over ssh, and on hosts of a job of
            /// Grid Engine. Without one: the image's, the user's home directory, the program's.
            working_dir: Option<String> = None,
            /// Whether processes in containers may start containers, for pools in pools. On Docker
            /// they get the engine's socket, and with it the rights of root on its host; on
            /// Kubernetes the token of their service account.
            nested: bool = false,
            /// The interface by which machines reach each other: its name, as `ib0`, or its
            /// network, as `10.1.0.0/16`. Without one: that on the route between them. `bind_host`
            /// wins over it in the process that it is set for.
            #[serde(deserialize_with = "lenient::text")]
            interface: Option<String> = None,
        }
    }
}

/// The transport between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LinkKind {
    /// Unix stream sockets: one host.
    Unix,
    /// nng over TCP.
    Nng,
    /// Queues within one process, for fiber's own tests.
    #[doc(hidden)]
    #[serde(skip)]
    Memory,
}

impl LinkKind {
    /// Returns the transport to processes in containers and on other machines.
    pub fn remote() -> LinkKind {
        LinkKind::Nng
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkKind::Unix => "unix",
            LinkKind::Nng => "nng",
            LinkKind::Memory => "memory",
        })
    }
}

/// The destination of children's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OutputMode {
    /// The parent's standard output and error, line by line.
    Inherit,
    /// The same, each line after the name of its process.
    Prefix,
    /// The same, and a line that several processes print within 100 ms is printed once, after their
    /// number: `[32 workers] line`. Each line waits for as long.
    Merge,
    /// One file for each process, with standard output and error.
    File,
    /// Nowhere. Errors still show the last lines of a process that failed.
    Null,
}
