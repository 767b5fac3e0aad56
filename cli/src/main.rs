//! The command `fiber`: runs programs in containers and pods, shows what programs do, copies their
//! files and cleans up.

mod args;
mod attach;
mod clean;
mod copy;
mod dashboard;
mod flamegraph;
mod forwarded;
mod inspect;
mod journal;
mod kill;
mod local;
mod logs;
mod names;
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
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use fiber_backends::cluster::{self, Cluster};
use fiber_core::{Config, Error};
use tracing_subscriber::EnvFilter;

use self::args::{Args, Backend, ClusterArgs, Command};

fn main() -> ExitCode {
    let command = Args::parse().command;
    tracing_subscriber::fmt()
        // Warnings of libraries come with the errors that they return.
        .with_env_filter(
            EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| EnvFilter::new("off,fiber_backends=warn")),
        )
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let done = match command {
        Command::Completions { shell } => reference::completions(shell),
        Command::Man { directory } => reference::man(directory.as_deref()),
        Command::Reference => reference::markdown(),
        Command::Journal { command } => journal::journal(command),
        Command::ServeVolume { words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            cluster::serve(&words).map(|()| ExitCode::SUCCESS).map_err(anyhow::Error::msg)
        }
        command => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(anyhow::Error::from)
            .and_then(|runtime| tokio::task::LocalSet::new().block_on(&runtime, execute(command))),
    };
    done.unwrap_or_else(|error| {
        let code = error.downcast_ref::<ExitError>().map_or(1, |refusal| refusal.code);
        eprintln!("error: {}", message(&error));
        ExitCode::from(code)
    })
}

async fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(run) => run::run(*run).await,
        Command::Ps { cluster, json } => ps::ps(&cluster, json).await,
        Command::Top(options) => top::top(&options).await,
        Command::Dashboard { cluster, port, name } => {
            dashboard::dashboard(&cluster, port, name.as_deref()).await
        }
        Command::Stack { cluster, name } => stack::stack(&cluster, &name).await,
        Command::Profile(profile) => stack::profile(&profile).await,
        Command::Logs { cluster, follow, tail, name } if cluster.is_local()? => {
            local::logs(&cluster, &name, follow, tail).await
        }
        Command::Logs { cluster, follow, tail, name } => {
            logs::logs(&*connect(&cluster).await?, &name, follow, tail).await
        }
        Command::Attach(options) => attach::attach(&options).await,
        Command::Wait(options) => wait::wait(&options).await,
        Command::Kill { cluster, now, names } if cluster.is_local()? => {
            local::kill(&cluster, &names, now).await
        }
        Command::Kill { cluster, now, names } => {
            kill::kill(&cluster.config()?, &*connect(&cluster).await?, &names, now).await
        }
        Command::Cp { cluster, source, target } => {
            // Wrong paths are refused before connecting to an engine.
            let (source, target) = copy::copy_paths(&source, &target)?;
            copy::copy(&*connect(&cluster).await?, source, target).await
        }
        Command::Clean { cluster, json } => clean::clean(&*connect(&cluster).await?, json).await,
        Command::Completions { .. }
        | Command::Journal { .. }
        | Command::Man { .. }
        | Command::Reference
        | Command::ServeVolume { .. } => Ok(ExitCode::SUCCESS),
    }
}

/// Connects to the selected cluster.
async fn connect(cluster: &ClusterArgs) -> anyhow::Result<Box<dyn Cluster>> {
    let config = cluster.config()?;
    Ok(cluster::connect(&config).await?)
}

impl ClusterArgs {
    /// Returns whether processes of this host are meant, and no engine.
    fn is_local(&self) -> anyhow::Result<bool> {
        Ok(self.config()?.backend == Backend::Local.to_string())
    }

    /// Returns the configuration, with the options of the command line.
    fn config(&self) -> anyhow::Result<Config> {
        let mut config = Config::load()?;
        if let Some(backend) = &self.backend {
            config.backend = backend.to_string();
        }
        if let Some(namespace) = &self.namespace {
            if config.backend != "kubernetes" {
                bail!(
                    "--namespace is for Kubernetes, but the backend is `{}`: leave it out, or add \
                     `--backend kubernetes`",
                    config.backend
                );
            }
            config.namespace = Some(namespace.clone());
        }
        Ok(config)
    }
}

/// Returns the messages of an error and its causes. The message of an [`Error`] includes its
/// causes.
fn message(error: &anyhow::Error) -> String {
    let last = error.chain().position(|cause| cause.is::<Error>());
    let messages: Vec<_> = error.chain().map(ToString::to_string).collect();
    messages[..last.map_or(messages.len(), |last| last + 1)].join(": ")
}

/// Returns the exit code that shells report for a process killed by a signal.
const fn killed_by(signal: i32) -> u8 {
    128 + signal as u8
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
