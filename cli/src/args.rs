//! The command line. The help, the man pages and docs/cli.md are generated from it.

mod backends;
mod entities;
mod journal;
mod map;

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use fiber_backends::cluster::VolumeMount;

use self::backends::{PlaceOptions, RunOptions};
pub(crate) use self::entities::{EntitiesCommand, Source as EntitiesSource};
pub(crate) use self::journal::JournalCommand;
pub(crate) use self::map::Map;
use crate::stack::Profile;
use crate::top::Top;

/// Runs programs that use fiber in containers, pods and batch jobs, shows what runs, and cleans up.
#[derive(Debug, Parser)]
#[command(
    name = "fiber",
    version,
    max_term_width = 100,
    after_help = "See `fiber COMMAND --help` for each command."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(New),
    Run(Box<Run>),
    /// Lists sessions and their processes.
    ///
    /// A session is a program with the processes that it started. Without --backend, the programs
    /// of this host are listed, and the sessions of the configured engine.
    ///
    /// NAME is what all commands call a session or process: a session has the name of its job, or
    /// its pid if it is a program of this host, and a process its path below that, as in `fiber
    /// top` and `fiber::tree()`. MACHINE is the computer or node on which it runs, and PLACE what
    /// that or its engine calls it. Of sessions of an engine, the jobs are listed: a host for
    /// several processes is one of them.
    ///
    /// CPU and MEMORY are the limits of containers and pods. Of processes of this host they are
    /// what the process uses: the mean share of a core since its start, and the proportional set
    /// size (PSS), in which memory that processes share counts in parts. It is the resident memory
    /// (RSS) where the system does not tell that.
    Ps {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Prints JSON: a list of sessions with their workers.
        #[arg(long)]
        json: bool,
        /// Lists only this session, or this process with those below it (see `fiber stack`).
        name: Option<String>,
    },
    /// Shows what sessions do, live.
    ///
    /// Shows pools and their workers, the slowest tasks under way, functions with the times of
    /// their tasks, processes with CPU time and memory, and what has failed. `?` lists the keys.
    /// NAME selects a session: without it, a list of them is shown.
    #[command(
        after_help = "Examples:\n  fiber top my-program\n  fiber top --once 4711\n  fiber top \
                            --json --interval 2s 4711 | jq .sessions[0].pools[0].rate"
    )]
    Top(Top),
    /// Serves a web page that shows what sessions do.
    ///
    /// Prints the page's link, which has a secret token: only browsers that were given the link see
    /// the page, and only on this host. The page is live, and needs no other host. Ctrl-C ends it.
    #[command(after_help = "Examples:\n  fiber dashboard\n  fiber dashboard --port 8080 4711")]
    Dashboard {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// The port on 127.0.0.1. 0 is any free one.
        #[arg(long, default_value = "0")]
        port: u16,
        /// Shows only this session (see `fiber stack`).
        name: Option<String>,
    },
    /// Prints what every thread of a process is doing.
    ///
    /// The process goes on meanwhile. Of a session on this host whose head does not answer, prints
    /// what the kernel says about the threads.
    ///
    /// NAME is a session, which means its head, or one of its processes: `4711`, `my-program`,
    /// `pool-1/worker-2`, `my-program/pool-1/worker-2`, or what its engine calls it (PLACE in
    /// `fiber ps`). The beginning is enough if it is the beginning of one only.
    #[command(after_help = "Examples:\n  fiber stack pool-1/worker-2\n  fiber stack --backend \
                            kubernetes fiber-e3ae700b/pool-1/worker-2")]
    Stack {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Shows idle threads of fiber and of async runtimes, too, and all frames.
        #[arg(long)]
        all: bool,
        /// A session or process.
        name: String,
    },
    /// Writes a flame graph of a process: where its threads spend their time.
    ///
    /// Samples the threads that run, while the process works, and draws their stacks as SVG. Of a
    /// process that runs less than 1 % of the time, it draws where its threads wait. Fiber's own
    /// threads are left out.
    #[command(after_help = "Example:\n  fiber profile --seconds 5 -o worker.svg pool-1/worker-2")]
    Profile(Profile),
    /// Prints the output of a session or of one of its processes.
    ///
    /// The output of a session includes that of its workers, unless its configuration says
    /// otherwise (`output`). Of a process on this host, in a host or in a batch job, its last lines
    /// are known; the output of a program on this host is where it was started.
    Logs {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Follows the output until the process ends.
        #[arg(short, long)]
        follow: bool,
        /// Begins with the last LINES lines.
        #[arg(long, value_name = "LINES")]
        tail: Option<u64>,
        /// A session or process (see `fiber stack`).
        name: String,
    },
    Map(Box<Map>),
    Attach(Attach),
    Wait(Wait),
    /// Stops sessions with all their workers, or single processes, and removes them.
    ///
    /// Sends SIGTERM, and SIGKILL after `shutdown_timeout` (5 s by default). The session of a
    /// killed process replaces it, as after any death. A host ends with all its processes. Programs
    /// of this host are killed if the backend is `local`.
    Kill {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Sends SIGKILL at once.
        #[arg(long)]
        now: bool,
        /// Sessions or processes (see `fiber stack`).
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Copies files and directories to, from and between volumes.
    ///
    /// Each side is a path of this host, or `CLAIM:/PATH` in a volume; `./a:b` is a path. As with
    /// `cp -r`, the copy goes into the target if that is a directory, and else becomes the target.
    /// On Kubernetes, a pod of this very command mounts the volume. Its image is built like that of
    /// a program (see `fiber run`), and it is removed in the end.
    #[command(
        after_help = "Examples:\n  fiber cp data.csv nfs:/in/\n  fiber cp nfs:/out ./results"
    )]
    Cp {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// The file or directory to copy.
        #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
        source: String,
        /// The target of the copy.
        #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
        target: String,
    },
    /// Removes leftovers of sessions that have ended, and of programs that were killed.
    Clean {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Prints JSON: a list of names.
        #[arg(long)]
        json: bool,
    },
    /// Shows entities: actors by key, and what is recorded of them.
    ///
    /// Shows those of the sessions that run, or with --journal those that a journal has, also of a
    /// program that has ended. See docs/actors.md.
    Entities {
        #[command(subcommand)]
        command: EntitiesCommand,
    },
    /// Shows, checks, exports and prunes journals of durable calls.
    ///
    /// A journal holds the outcomes of a program's tasks and the states of its actors, rings and
    /// queues (see docs/durable.md). JOURNAL is the name of a folder in the folder `journals` of
    /// the configuration, or a path with a `/`.
    Journal {
        #[command(subcommand)]
        command: JournalCommand,
    },
    /// Prints the completions for a shell.
    #[command(after_help = "Example:\n  fiber completions bash > \
                      ~/.local/share/bash-completion/completions/fiber")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints the manual page, or writes one for each command into a directory.
    Man {
        /// An existing directory.
        #[arg(value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
    /// Prints docs/cli.md, or docs/configuration.md.
    #[command(hide = true)]
    Reference {
        #[arg(long)]
        configuration: bool,
    },
    /// Serves a volume for `fiber cp`, in a pod that mounts it.
    #[command(hide = true)]
    ServeVolume {
        #[arg(required = true)]
        words: Vec<String>,
    },
}

/// The cluster whose sessions a command acts on.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The backend that runs processes [default: FIBER_BACKEND or fiber.toml, else local].
    #[arg(long, value_name = "BACKEND", value_parser = backends::names())]
    pub(crate) backend: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceOptions,
}

/// Creates a project that uses fiber: a program that runs, its test and its configuration.
///
/// Without an option, the program has a pool and an actor, and uses the checkout of fiber from which
/// this command was built. The package is one of `cargo new`: in a new git repository, unless there
/// is one around it, and a member of the workspace around it, if there is one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fiber new primes && cd primes && cargo run
  fiber new --durable sweep
  fiber new --path ../fiber primes")]
pub(crate) struct New {
    #[command(flatten)]
    pub(crate) variant: Variant,
    #[command(flatten)]
    pub(crate) source: Source,
    /// The directory to create. Its name is that of the package.
    #[arg(value_name = "NAME")]
    pub(crate) directory: PathBuf,
}

/// Where the projects of `fiber new` take fiber from.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Source {
    /// Takes fiber from another checkout, in DIR.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) path: Option<PathBuf>,
    /// Takes fiber from the git repository at URL.
    #[arg(long, value_name = "URL")]
    pub(crate) git: Option<String>,
}

/// The program that `fiber new` writes.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Variant {
    /// An actor in a process of its own, which is restarted with its state.
    #[arg(long)]
    pub(crate) actor: bool,
    /// A ring: ranked processes that reduce arrays together.
    #[arg(long)]
    pub(crate) ring: bool,
    /// A durable sweep, which goes on where it was after a kill.
    #[arg(long)]
    pub(crate) durable: bool,
    /// A service: HTTP in front, actors by key behind, metrics, an end in order by SIGTERM.
    #[arg(long)]
    pub(crate) service: bool,
}

/// Starts a program in a container, pod or batch job, from which it starts its workers.
#[derive(Debug, clap::Args)]
#[command(long_about = backends::run_about(), after_help = backends::run_examples())]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Prints the program's output until it ends, and exits with its exit code; Ctrl-C ends the
    /// whole session, the loss of the terminal does not.
    #[arg(short, long)]
    pub(crate) attach: bool,
    /// The image of the program; CMD is a path in it.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dockerfile", "bundle"])]
    pub(crate) image: Option<String>,
    /// The Dockerfile to build the image from. Its directory is the build context.
    #[arg(long, value_name = "FILE", conflicts_with = "bundle", value_hint = ValueHint::FilePath)]
    pub(crate) dockerfile: Option<PathBuf>,
    /// Builds the image from CMD even if there is a Dockerfile.
    #[arg(long)]
    pub(crate) bundle: bool,
    /// CPU cores for the program itself: 2, or 0.5. In a batch job: cores of each node.
    #[arg(long, value_name = "CORES", value_parser = cores)]
    pub(crate) cpu: Option<f64>,
    /// Memory for the program itself: 512MiB, or 2GiB. In a batch job: memory of each node.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<ByteSize>,
    /// GPUs for the program itself. In a batch job: GPUs of each node.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gpu: Option<u32>,
    /// A volume for the program and its workers, mounted at /persistent or at PATH; read-only with
    /// `:ro` after the path.
    #[arg(short, long = "volume", value_name = "CLAIM[:PATH]")]
    pub(crate) volumes: Vec<VolumeMount>,
    /// An environment variable for the program; NAME alone takes its value from this environment.
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<String>,
    /// Starts the program again up to COUNT times if it or its node is lost.
    ///
    /// The engine does that if the program's container or pod ends with another exit code than 0,
    /// or is lost. A batch system queues the job again. With the backend `local`, this command does
    /// it if a signal killed the program or its exit code is 75 (`to be continued`); Ctrl-C and
    /// SIGTERM end both for good.
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = restarts())]
    pub(crate) restarts: u32,
    #[command(flatten)]
    pub(crate) own: RunOptions,
    /// The name of the session [default: fiber- and eight random hexadecimal digits].
    #[arg(long, value_parser = name)]
    pub(crate) name: Option<String>,
    /// Prints JSON.
    #[arg(long, conflicts_with = "attach")]
    pub(crate) json: bool,
    /// The program and its arguments. Optional if the image has a command.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<String>,
}

impl Run {
    /// Returns the given options that not every backend takes.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            ("image", self.image.is_some()),
            ("dockerfile", self.dockerfile.is_some()),
            ("bundle", self.bundle),
            ("cpu", self.cpu.is_some()),
            ("memory", self.memory.is_some()),
            ("gpu", self.gpu.is_some()),
            ("volume", !self.volumes.is_empty()),
            ("name", self.name.is_some()),
            ("json", self.json),
        ];
        options.into_iter().filter_map(|(name, given)| given.then_some(name))
    }
}

/// Follows a session that runs elsewhere: prints its output and ends with its exit code.
///
/// A terminal also shows how far the session's calls are. Ctrl-C and the key `q` detach: the
/// session goes on, and any number of commands can attach to it, at any time. A session with
/// --restarts is followed over its restarts.
///
/// The output of a program on this host is where it was started, so only its progress and its end
/// are shown. Its exit code is known only where it was started.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fiber attach my-program
  fiber attach --from-start my-program >all.log

Exit codes: that of the session; 0 after `q`, 130 after Ctrl-C; 1 if the session's exit code is not
known.")]
pub(crate) struct Attach {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Begins with the first line of the output, not with the next one.
    #[arg(long)]
    pub(crate) from_start: bool,
    /// A session as `fiber ps` shows it, or the beginning of its name.
    pub(crate) name: String,
}

/// Waits until sessions have ended, and exits with their exit code.
///
/// Prints the exit code of each session when it ends. The command's own exit code is that of the
/// first NAME whose exit code is not 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fiber wait my-program
  fiber wait --timeout 1h first second && fiber cp nfs:/out results

Exit codes: that of the session; 124 after --timeout; 1 if the session's exit code is not known, as
that of a program on this host.")]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The longest time to wait: 90s, 2h.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Sessions as `fiber ps` shows them, or the beginnings of their names.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Engines count in 32 bits with a sign.
fn restarts() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(0..=i32::MAX as u64)
}

fn cores(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cores) if cores.is_finite() && cores > 0.0 => Ok(cores),
        _ => Err("give a number of cores above 0: 2, or 0.5".into()),
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("give a time above 0: 90s, 10m, or 2h".into()),
    }
}

fn memory(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size),
        _ => Err("give an amount of memory: 512MiB, or 2GiB".into()),
    }
}

fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let right = text.starts_with(plain)
        && text.ends_with(plain)
        && text.chars().all(|c| plain(c) || c == '-');
    if right && text.len() <= 50 {
        Ok(text.to_string())
    } else {
        Err("use lower case letters, digits and hyphens, at most 50, with no hyphen at the \
             beginning or end"
            .into())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_after_the_program_belong_to_the_program() {
        let line =
            ["fiber", "run", "-a", "--cpu", "0.5", "program", "-a", "--backend", "x", "--", "-v"];
        let Command::Run(run) = Args::parse_from(line).command else { panic!("it runs") };
        assert_eq!(run.command, ["program", "-a", "--backend", "x", "--", "-v"]);
        assert!(run.attach && run.cluster.backend.is_none() && run.cpu == Some(0.5));
    }

    #[test]
    fn session_names_are_valid_on_every_engine() {
        for right in ["a", "job-1", "1a"] {
            assert!(name(right).is_ok(), "{right}");
        }
        for wrong in ["", "-a", "a-", "A", "a_b", "a.b", "ä"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
