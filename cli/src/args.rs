//! What the command line can say. The help, the man pages and docs/cli.md are made of this.

use std::fmt;
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use fiber_backends::cluster::VolumeMount;

/// Runs programs that use fiber in containers and pods, shows what runs, and cleans up.
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
    Run(Box<Run>),
    /// Lists sessions, and the processes of each.
    ///
    /// A session is a program with the processes that it started. Programs of this host that have
    /// containers are listed too, by their pid.
    Ps {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Prints JSON: a list of sessions with their workers.
        #[arg(long)]
        json: bool,
    },
    /// Prints what a session, or one worker, has printed.
    ///
    /// What a session prints includes what its workers print, unless its configuration says
    /// otherwise (`output`).
    Logs {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Goes on printing until it ends.
        #[arg(short, long)]
        follow: bool,
        /// Begins with the last so many lines.
        #[arg(long, value_name = "LINES")]
        tail: Option<u64>,
        /// A session or worker as `fiber ps` shows it, or the beginning of its name.
        name: String,
    },
    /// Ends sessions with all their workers, or single workers, and removes them.
    ///
    /// They are asked to end (SIGTERM), and killed after `shutdown_timeout` (5 s unless
    /// configured). A worker that is killed is replaced by its session as if it had died.
    Kill {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Kills without asking first.
        #[arg(long)]
        now: bool,
        /// Sessions or workers as `fiber ps` shows them, or the beginnings of their names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Copies files and directories to, from and between volumes.
    ///
    /// Each side is a path of this host, or `CLAIM:/PATH` in a volume; `./a:b` is a path. As with
    /// `cp -r`, what is copied goes into the target if that is a directory, and else becomes it. On
    /// Kubernetes a pod of this very command does it, whose image is made like that of a program
    /// (see `fiber run`). What mounts the volume meanwhile is removed in the end.
    #[command(
        after_help = "Examples:\n  fiber cp data.csv nfs:/in/\n  fiber cp nfs:/out ./results"
    )]
    Cp {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// What is copied.
        #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
        source: String,
        /// ClusterArgs to.
        #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
        target: String,
    },
    /// Removes what is left of sessions that have ended, and of programs that were killed.
    Clean {
        #[command(flatten)]
        cluster: ClusterArgs,
        /// Prints JSON: a list of names.
        #[arg(long)]
        json: bool,
    },
    /// Prints the completions for a shell.
    #[command(after_help = "Example:\n  fiber completions bash > \
                      ~/.local/share/bash-completion/completions/fiber")]
    Completions {
        /// Which one.
        shell: Shell,
    },
    /// Prints the manual page, or writes one for each command into a directory.
    Man {
        /// The directory, which has to exist.
        #[arg(value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
    /// Prints docs/cli.md.
    #[command(hide = true)]
    Reference,
    /// What this program does in a pod that has a volume mounted, for `fiber cp`.
    #[command(hide = true)]
    ServeVolume {
        #[arg(required = true)]
        words: Vec<String>,
    },
}

/// ClusterArgs sessions are.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// ClusterArgs processes run [default: what FIBER_BACKEND or fiber.toml say, else local].
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<Backend>,
    /// The namespace on Kubernetes [default: what FIBER_NAMESPACE or fiber.toml say, else the
    /// kubeconfig's].
    #[arg(long)]
    pub(crate) namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Processes of this host.
    Local,
    /// Containers of a Docker engine: this host's, or the one that DOCKER_HOST names.
    Docker,
    /// Pods of the Kubernetes cluster that the kubeconfig names.
    Kubernetes,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Local => "local",
            Backend::Docker => "docker",
            Backend::Kubernetes => "kubernetes",
        })
    }
}

/// Starts a program: its head in a container or pod, from which it starts its workers.
///
/// Without --image, the image is built from the Dockerfile of this directory if there is one, and
/// is else made of the program CMD and the libraries that it uses: neither a base image nor a
/// registry is needed. ClusterArgs a registry is configured (`registry`, FIBER_REGISTRY), the image is
/// pushed there.
///
/// The program is told its configuration as this directory's fiber.toml and this environment have
/// it. On `local`, it is simply run. On Kubernetes its pod runs as the service account `fiber` if
/// there is one (see deploy/kubernetes/rbac.yaml) and none other is configured, and --gpu asks for
/// nvidia.com/gpu.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fiber run --backend docker -a target/release/my-program --its-option
  fiber run --backend kubernetes -v nfs cat /persistent/foo.txt

Exit codes: with --attach that of the program; 125 if it could not be started, 126 if CMD can't be executed, 127 if
there is no such program, 128 and the signal's number if this command was interrupted.")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Prints what the program prints until it ends, and ends with its exit code; Ctrl-C ends the
    /// whole session.
    #[arg(short, long)]
    pub(crate) attach: bool,
    /// The image that has the program; CMD is then looked for there.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dockerfile", "bundle"])]
    pub(crate) image: Option<String>,
    /// The Dockerfile that the image is built from, in its own directory.
    #[arg(long, value_name = "FILE", conflicts_with = "bundle", value_hint = ValueHint::FilePath)]
    pub(crate) dockerfile: Option<PathBuf>,
    /// Makes the image of CMD even if there is a Dockerfile.
    #[arg(long)]
    pub(crate) bundle: bool,
    /// Processor cores for the program itself: 2, or 0.5.
    #[arg(long, value_name = "CORES", value_parser = cores)]
    pub(crate) cpu: Option<f64>,
    /// Memory for the program itself: 512MiB, or 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<ByteSize>,
    /// Graphics processors for the program itself.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gpu: Option<u32>,
    /// A volume that the program and its workers get, at /persistent or at PATH; `:ro` after the
    /// path to read only.
    #[arg(short, long = "volume", value_name = "CLAIM[:PATH]")]
    pub(crate) volumes: Vec<VolumeMount>,
    /// A variable of the program's environment; NAME alone takes this environment's value.
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<String>,
    /// What the session is called [default: fiber- and eight random digits].
    #[arg(long, value_parser = name)]
    pub(crate) name: Option<String>,
    /// Prints JSON in place of words.
    #[arg(long, conflicts_with = "attach")]
    pub(crate) json: bool,
    /// The program and its arguments. An image may know them itself.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}

fn cores(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cores) if cores.is_finite() && cores > 0.0 => Ok(cores),
        _ => Err("it has to be a number of cores above 0: 2, or 0.5".into()),
    }
}

fn memory(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size),
        _ => Err("it has to be an amount of memory: 512MiB, or 2GiB".into()),
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
        Err("it has to be of lower case letters, digits and hyphens, begin and end with neither \
             hyphen, and have at most 50 of them"
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
    fn what_follows_the_program_is_the_programs() {
        let line =
            ["fiber", "run", "-a", "--cpu", "0.5", "program", "-a", "--backend", "x", "--", "-v"];
        let Command::Run(run) = Args::parse_from(line).command else { panic!("it runs") };
        assert_eq!(run.command, ["program", "-a", "--backend", "x", "--", "-v"]);
        assert!(run.attach && run.cluster.backend.is_none() && run.cpu == Some(0.5));
    }

    #[test]
    fn names_are_what_every_engine_takes() {
        for right in ["a", "job-1", "1a"] {
            assert!(name(right).is_ok(), "{right}");
        }
        for wrong in ["", "-a", "a-", "A", "a_b", "a.b", "ä"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
