//! The command `fiber`: runs programs in containers and pods, and commands on pools, shows what
//! programs do, copies their files and cleans up.
//!
//! It is a library so that a command may have backends from outside of fiber: one whose crate links
//! such a backend, and whose `main` is [`main`].

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod terminal;

mod args;
mod attach;
mod clean;
mod copy;
mod dashboard;
mod entities;
mod flamegraph;
mod forwarded;
mod inspect;
mod journal;
mod kill;
mod logs;
mod map;
mod model;
mod names;
mod new;
mod program;
mod progress;
mod ps;
mod reference;
mod run;
mod sessions;
mod stack;
mod supervise;
mod top;
mod wait;

use std::io::IsTerminal;
use std::pin::{Pin, pin};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;
use fiber_backends::cluster::{self, Cluster};
use fiber_core::Config;
use fiber_core::inspect::BRIDGE;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::args::{Args, ClusterArgs, Command};
use self::terminal::printable;

/// Warnings of libraries come with the errors that they return. The workers of a map that has ended
/// are refused if they connect only then.
const WARNINGS: &str = "off,fiber=warn,fiber_runtime::runtime::listen=error";

/// Runs the command line of this process, and returns the exit code for `main`.
pub fn main() -> ExitCode {
    // The arguments of a helper of `fiber map` may be those of another command.
    fiber_backends::run_if_helper();
    if is_part_of_a_map() {
        fiber::init();
    }
    Config::skip_unknown_sections();
    let command = Args::try_parse().unwrap_or_else(|error| refuse(&error)).command;
    let output = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(output).with(logged()).init();
    execute(command).unwrap_or_else(|error| {
        let code = error.downcast_ref::<ExitError>().map_or(1, |refusal| refusal.code);
        tell!("error: {}", printable(format!("{error:#}")));
        ExitCode::from(code)
    })
}

/// Returns the targets that are logged: those in `RUST_LOG`, if it can be read.
fn logged() -> Targets {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|targets| targets.parse().ok());
    wanted.unwrap_or_else(|| WARNINGS.parse().expect("they are targets with levels"))
}

/// Returns whether this is `fiber map`, or one of the processes that it starts: a worker has its
/// arguments, and the others have none, or the bridge's. Other commands may run in the container of
/// a program's worker, whose variables are not for them.
fn is_part_of_a_map() -> bool {
    match std::env::args_os().nth(1) {
        Some(argument) => argument == "map" || argument == BRIDGE,
        None => true,
    }
}

/// Ends this process because of its command line, or with the help that it asks for.
fn refuse(error: &clap::Error) -> ! {
    let is_map = std::env::args_os().nth(1).is_some_and(|argument| argument == "map");
    if is_map && error.use_stderr() {
        let _ = error.print();
        // The exit code 2 would say that two commands have failed.
        std::process::exit(map::REFUSED.into());
    }
    error.exit()
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Completions { shell } => reference::completions(shell),
        Command::Man { directory } => reference::man(directory.as_deref()),
        Command::Reference { configuration } => reference::markdown(configuration),
        Command::Journal { command } => journal::journal(command),
        Command::Map(arguments) => map::map(*arguments),
        Command::New(options) => new::new(&options),
        Command::ServeVolume { words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            cluster::serve(&words).map(|()| ExitCode::SUCCESS).map_err(anyhow::Error::msg)
        }
        Command::Run(run) => block_on(run::run(*run)),
        Command::Ps { cluster, json, name } => block_on(ps::ps(&cluster, json, name.as_deref())),
        Command::Top(options) => block_on(top::top(&options)),
        Command::Dashboard { cluster, port, name } => {
            block_on(dashboard::dashboard(&cluster, port, name.as_deref()))
        }
        Command::Entities { command } => block_on(entities::entities(command)),
        Command::Stack { cluster, all, name } => block_on(stack::stack(&cluster, all, &name)),
        Command::Profile(profile) => block_on(stack::profile(&profile)),
        Command::Logs { cluster, follow, tail, name } => {
            block_on(logs::logs(&cluster, &name, follow, tail))
        }
        Command::Attach(options) => block_on(attach::attach(&options)),
        Command::Wait(options) => block_on(wait::wait(&options)),
        Command::Kill { cluster, now, names } => block_on(kill::kill(&cluster, &names, now)),
        Command::Cp { cluster, source, target } => block_on(copy::copy(&cluster, &source, &target)),
        Command::Clean { cluster, json } => block_on(clean::clean(&cluster, json)),
    }
}

/// Runs the work of a command that waits for engines or programs, on this thread.
fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let work: Pin<&mut dyn Future<Output = _>> = pin!(work);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// Connects to the selected cluster.
async fn connect(cluster: &ClusterArgs) -> anyhow::Result<Box<dyn Cluster>> {
    let config = cluster.config()?;
    Ok(cluster::connect(&config).await?)
}

impl ClusterArgs {
    /// Returns the configuration, with the options of the command line.
    fn config(&self) -> anyhow::Result<Config> {
        let mut config = Config::load()?;
        self.apply(&mut config);
        self.check(&config)?;
        Ok(config)
    }

    /// Changes a configuration by the options of the command line.
    fn apply(&self, config: &mut Config) {
        if let Some(backend) = &self.backend {
            config.backend.clone_from(backend);
        }
        self.place.apply(config);
    }

    /// Refuses options that the backend of `config` does not have.
    fn check(&self, config: &Config) -> anyhow::Result<()> {
        self.place.problem(&config.backend).map_or(Ok(()), |problem| Err(anyhow!(problem)))
    }
}

/// Returns the exit code that shells report for a process killed by a signal.
const fn killed_by(signal: i32) -> u8 {
    128 + signal as u8
}

/// Returns bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An error with an exit code of its own.
#[derive(Debug)]
struct ExitError {
    code: u8,
    problem: String,
}

impl std::fmt::Display for ExitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ExitError {}

impl ExitError {
    /// Gives an error this exit code, unless it has one of its own.
    fn or(code: u8, error: anyhow::Error) -> anyhow::Error {
        match error.is::<ExitError>() {
            true => error,
            false => anyhow!(ExitError { code, problem: format!("{error:#}") }),
        }
    }
}
