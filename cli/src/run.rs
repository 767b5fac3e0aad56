//! `fiber run`.

use std::convert::Infallible;
use std::env::VarError;
use std::future::pending;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use fiber_backends::cluster::{self, Cluster, ProgramSource, RunRequest, SessionBackend, Started};
use fiber_core::{Config, Error, Meta, Signals, random};
use futures_util::FutureExt;
use futures_util::future::maybe_done;
use serde_json::json;
use tokio::time::timeout;

use crate::args;
use crate::kill::grace;
use crate::logs::{ForwardEnd, forward};
use crate::progress::Spinners;
use crate::supervise::TO_BE_CONTINUED;
use crate::terminal::say_json;
use crate::{ExitError, forwarded, hex, killed_by, program, sessions, supervise, wait};

/// The exit code for a program that could not be started, as with `docker run`.
const NOT_STARTED: u8 = 125;
/// The exit code for a program whose output has lost its reader.
pub(crate) const READER_GONE: u8 = killed_by(13);

/// The exit code of a command that SIGTERM has ended.
const TERMINATED: u8 = killed_by(15);
/// The number of SIGHUP, which a process gets when its terminal goes.
const HANGUP: i32 = 1;
/// Time for the exit status to arrive after the end: a busy engine takes seconds to tell it.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the end of a program after `grace`, in seconds.
const PROGRAM_END: u32 = 25;

pub(crate) async fn run(args: args::Run) -> anyhow::Result<ExitCode> {
    let refused = |error| ExitError::or(NOT_STARTED, error);
    let config = args.cluster.config().map_err(refused)?;
    let backend = cluster::configured(&config).map_err(|error| refused(error.into()))?;
    check(&args, backend).map_err(refused)?;
    let run = run_request(&args, &config, backend).map_err(refused)?;
    let cluster = backend.connect(&config).await.map_err(|error| refused(error.into()))?;
    let cluster = &*cluster;
    let mut signals = Signals::listen().context("signal handlers can't be installed")?;
    let mut has_terminal = true;
    let started = {
        let mut starting = pin!(cluster.start(&run, &Spinners));
        loop {
            tokio::select! {
                started = &mut starting => break Ok(started),
                signal = signals.next() => match signal {
                    HANGUP => has_terminal = false,
                    signal => break Err(signal),
                },
            }
        }
    };
    // The start has been given up by now: it creates nothing more.
    let started = match started {
        Ok(started) => started.map_err(|error| refused(start_problem(error)))?,
        Err(signal) => {
            cluster.remove_session(&run.session).await?;
            return Ok(ExitCode::from(killed_by(signal)));
        }
    };
    match started {
        Started::Elsewhere if !has_terminal => return Ok(detach(&run.name)),
        Started::Elsewhere => {}
        Started::Here(_) | Started::Described(_) if !has_terminal => {
            return Ok(ExitCode::from(killed_by(HANGUP)));
        }
        Started::Here(program) => return become_program(program, &args).await.map_err(refused),
        Started::Described(text) => {
            say!("{}", text.trim_end());
            return Ok(ExitCode::SUCCESS);
        }
    }
    if args.attach {
        tell!("Created {}: {}", cluster.unit(), run.name);
        return attach(&config, cluster, &run.name, &mut signals).await;
    }
    match args.json {
        true => say_json(&json!({ cluster.unit(): run.name, "session": run.session })),
        false => say!("Created {}: {}", cluster.unit(), run.name),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the problem of a start alone: the user knows the command.
fn start_problem(error: Error) -> anyhow::Error {
    match error {
        Error::Start { reason, .. } => anyhow!(reason.start_problem()),
        other => anyhow!(other),
    }
}

/// Returns how many seconds a program has to end what runs, if it has durable calls. Any other ends
/// at once.
fn drain_time(config: &Config) -> u32 {
    (config.grace.as_secs_f64().ceil() as u32).saturating_add(PROGRAM_END).max(grace(config))
}

/// Fails for options that the backend does not take.
fn check(args: &args::Run, backend: &SessionBackend) -> anyhow::Result<()> {
    if let Some(problem) = args.own.problem(backend) {
        bail!(problem);
    }
    let refused = args.given().find(|option| !backend.takes(option));
    let (_, instead) = backend.refused;
    refused.map_or(Ok(()), |option| Err(anyhow!("--{option} is for containers, but {instead}")))
}

/// Replaces this command by the program, which so keeps its terminal, signals and exit code; or
/// stays and starts it again, if asked to.
async fn become_program(
    mut program: std::process::Command,
    args: &args::Run,
) -> anyhow::Result<ExitCode> {
    let name = args.command.first().map_or("", String::as_str);
    let path = program.get_program().to_os_string();
    program.arg0(name);
    let error = match args.restarts {
        0 => program.exec(),
        restarts => match supervise::run(program, name, restarts).await {
            Ok(code) => return Ok(code),
            Err(error) => error,
        },
    };
    bail!(ExitError {
        code: program::NOT_EXECUTABLE,
        problem: format!("`{}` can't be executed: {error}", path.display())
    })
}

fn run_request(
    args: &args::Run,
    config: &Config,
    backend: &SessionBackend,
) -> anyhow::Result<RunRequest> {
    let session = hex(&random::<4>());
    for (index, volume) in args.volumes.iter().enumerate() {
        if let Some(other) = args.volumes[..index].iter().find(|other| other.path == volume.path) {
            bail!(
                "the volumes `{}` and `{}` have the same path {}: give one of them another path, \
                 as in `-v {}:/PATH`",
                other.claim,
                volume.claim,
                volume.path,
                volume.claim
            );
        }
    }
    let dockerfile = Path::new("Dockerfile");
    let takes_images = backend.takes("image");
    let image = args
        .image
        .as_ref()
        .or(config.image.as_ref())
        .filter(|_| args.dockerfile.is_none() && !args.bundle && takes_images);
    let (source, command) = if let Some(name) = image {
        (ProgramSource::Image(name.clone()), args.command.clone())
    } else if let Some(file) = &args.dockerfile {
        (ProgramSource::Dockerfile(file.clone()), args.command.clone())
    } else if dockerfile.is_file() && !args.bundle && takes_images {
        (ProgramSource::Dockerfile(dockerfile.to_path_buf()), args.command.clone())
    } else {
        let missing = match takes_images {
            true => {
                "there is nothing to run: give a program (`fiber run CMD`), an image or a Dockerfile"
            }
            false => "there is nothing to run: give a program: `fiber run CMD`",
        };
        let (command, arguments) = args.command.split_first().context(missing)?;
        (ProgramSource::Executable(program::find(command)?), arguments.to_vec())
    };
    let mut meta = Meta::new();
    (meta.cpu, meta.memory, meta.gpu) = (args.cpu, args.memory, args.gpu);
    let given = environment(args)?;
    let environment = forwarded::variables(config, given.clone())?;
    Ok(RunRequest {
        name: args.name.clone().unwrap_or_else(|| format!("fiber-{session}")),
        session,
        source,
        command,
        meta,
        volumes: args.volumes.clone(),
        environment,
        given,
        restarts: args.restarts,
        attach: args.attach,
        options: args.own.0.clone(),
    })
}

fn environment(args: &args::Run) -> anyhow::Result<Vec<(String, String)>> {
    let variable = |text: &String| match text.split_once('=') {
        Some(("", _)) => bail!("`--env {text}` has no name: write NAME=VALUE"),
        Some((name, value)) => Ok((name.to_string(), value.to_string())),
        None => {
            let value = std::env::var(text).map_err(|error| match error {
                VarError::NotPresent => anyhow!(
                    "`--env {text}` needs {text} in this environment, which does not have it: \
                     write {text}=VALUE"
                ),
                VarError::NotUnicode(_) => anyhow!(
                    "`--env {text}` takes {text} from this environment, where its value is no \
                     UTF-8: write {text}=VALUE, or correct it"
                ),
            })?;
            Ok((text.clone(), value))
        }
    };
    args.environment.iter().map(variable).collect()
}

/// Leaves a session to itself, because the terminal of this command is gone.
fn detach(name: &str) -> ExitCode {
    // Standard error may be a file.
    tell!(
        "The terminal is gone; {name} goes on: `fiber attach {name}` follows it again, `fiber kill \
         {name}` ends it"
    );
    ExitCode::from(killed_by(HANGUP))
}

/// Prints the program's output until it ends, until the terminal goes, or until a signal asks this
/// command to end, which ends the session, too.
async fn attach(
    config: &Config,
    cluster: &dyn Cluster,
    name: &str,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let output = cluster.logs(name, true, None).await?;
    let printing = forward(output);
    tokio::pin!(printing);
    // Runs beside the output: another command may remove the program's container right after its
    // end.
    let ended = maybe_done(cluster.wait(name));
    tokio::pin!(ended);
    let asked = tokio::select! {
        never = (&mut ended).then(|()| pending::<Infallible>()) => match never {},
        passed = &mut printing => match passed? {
            ForwardEnd::Complete => None,
            ForwardEnd::ReaderGone => Some(READER_GONE),
            ForwardEnd::TerminalGone => return Ok(detach(name)),
        },
        signal = signals.next() => match signal {
            HANGUP => return Ok(detach(name)),
            signal => Some(killed_by(signal)),
        },
    };
    let code = match asked {
        None => {
            (&mut ended).await;
            let ended = ended.take_output().context("the exit status is read once")??;
            let code = wait::report(name, &ended);
            sessions::stop(cluster, name, 0).await?;
            remove(cluster, name, ended.code).await?;
            code
        }
        Some(code) => {
            let ending = async {
                // Forward also what it prints while it ends.
                let rest_of_output = async {
                    if code != READER_GONE {
                        let _ = (&mut printing).await;
                    }
                };
                let limit = if code == TERMINATED { drain_time(config) } else { grace(config) };
                tokio::join!(sessions::stop(cluster, name, limit), rest_of_output).0
            };
            tokio::select! {
                // The exit status may be gone with the session when the end is over.
                never = (&mut ended).then(|()| pending::<Infallible>()) => match never {},
                stopped = ending => stopped?,
                // A second signal skips the grace period.
                () = async { while signals.next().await == HANGUP {} } => {
                    sessions::stop(cluster, name, 0).await?
                }
            }
            // A program with durable calls says that it is to be continued.
            let known = timeout(STATUS_TIMEOUT, &mut ended).await;
            // Its end was asked for, so it is no failure.
            remove(cluster, name, 0).await?;
            match known.ok().and_then(|()| ended.take_output()) {
                Some(Ok(ended)) if ended.code == TO_BE_CONTINUED => TO_BE_CONTINUED as u8,
                _ => code,
            }
        }
    };
    Ok(ExitCode::from(code))
}

/// Removes what an attached session has left, except output that somebody may need.
async fn remove(cluster: &dyn Cluster, name: &str, code: i32) -> anyhow::Result<()> {
    let kept = cluster.keep_output(name, code).await?;
    if kept.is_empty() {
        return Ok(cluster.remove(name).await?);
    }
    let paths: Vec<String> = kept.iter().map(|path| path.display().to_string()).collect();
    tell!(
        "The output of {name} is kept in {}: `fiber kill {name}` removes it",
        paths.join(" and ")
    );
    Ok(())
}
