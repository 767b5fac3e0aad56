//! `fiber attach`: follows a session that runs elsewhere.

mod keys;
mod progress;
mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, bail};
use fiber_backends::cluster::{Cluster, Location};
use fiber_core::Signals;
use fiber_core::stats::ProcessRole;
use futures_util::StreamExt;
use futures_util::future::maybe_done;

use self::keys::Keys;
use self::progress::Progress;
use self::screen::Screen;
use crate::args;
use crate::inspect::sessions::{Head, Sessions};
use crate::inspect::target;
use crate::run::READER_GONE;
use crate::sessions::{self, Named};
use crate::wait::{local_end, report};
use crate::{connect, killed_by};

/// Why a command leaves a session that goes on.
enum Left {
    /// The key.
    Detached,
    /// A signal.
    Signal(i32),
}

pub(crate) async fn attach(args: &args::Attach) -> anyhow::Result<ExitCode> {
    if args.cluster.is_local()? {
        return attach_locally(args).await;
    }
    let cluster = connect(&args.cluster).await?;
    let session = match sessions::find(&*cluster, &args.name).await? {
        Named::Session(session) => session,
        Named::Worker(worker, head) => {
            bail!("{0} is a worker of {head}: `fiber logs --follow {0}` follows it", worker.name)
        }
    };
    match session.head.location {
        Location::Host => attach_locally(args).await,
        Location::Cluster => follow(args, &*cluster, &session.head.name).await,
    }
}

/// Follows a session in containers or pods to its end.
async fn follow(
    args: &args::Attach,
    cluster: &dyn Cluster,
    name: &str,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("signal handlers can't be installed")?;
    let mut keys = Keys::of_terminal();
    let mut screen = Screen::new(name, keys.is_some());
    let mut progress = Progress::of_head(&args.cluster, Head::Engine(name.into())).await?;
    let ended = maybe_done(cluster.wait(name));
    tokio::pin!(ended);
    let mut output = cluster.logs(name, true, (!args.from_start).then_some(0)).await?;
    loop {
        tokio::select! {
            chunk = output.next() => match chunk {
                Some(chunk) => if !screen.print(chunk?)? {
                    return Ok(ExitCode::from(READER_GONE));
                },
                None => break,
            },
            () = &mut ended, if !has_ended(&ended) => {}
            line = progress.next(), if screen.shows_progress() => screen.show(&line),
            () = keys::pressed(&mut keys) => return Ok(leave(name, screen, Left::Detached)),
            signal = signals.next() => return Ok(leave(name, screen, Left::Signal(signal))),
        }
    }
    // The output is complete a moment before the engine knows the exit code.
    if !has_ended(&ended) {
        tokio::select! {
            () = &mut ended => {}
            signal = signals.next() => return Ok(leave(name, screen, Left::Signal(signal))),
        }
    }
    screen.close()?;
    let ended = ended.take_output().context("the exit status is read once")??;
    Ok(ExitCode::from(report(name, &ended)))
}

fn has_ended<F: Future>(waiting: &futures_util::future::MaybeDone<F>) -> bool {
    !matches!(waiting, futures_util::future::MaybeDone::Future(_))
}

/// Follows the progress of a program on this host to its end.
async fn attach_locally(args: &args::Attach) -> anyhow::Result<ExitCode> {
    let observed = Sessions::connect(&args.cluster).await?.look().await?;
    let target = target::find(&observed, &args.name)?;
    let name = target.head.name();
    let Head::Local(head) = &target.head else { bail!("`{}` is not on this host", args.name) };
    if target.role != ProcessRole::Head {
        bail!("{} is a process of {name}: attach to that", target.name);
    }
    let mut signals = Signals::listen().context("signal handlers can't be installed")?;
    let mut keys = Keys::of_terminal();
    let mut screen = Screen::new(&name, keys.is_some());
    screen.say(&format!(
        "The output of {name} is where it was started; here are only its progress and its end."
    ));
    let mut progress = Progress::of_head(&args.cluster, target.head.clone()).await?;
    let ended = local_end(head.pid);
    tokio::pin!(ended);
    loop {
        tokio::select! {
            end = &mut ended => {
                screen.close()?;
                return Err(end);
            }
            line = progress.next(), if screen.shows_progress() => screen.show(&line),
            () = keys::pressed(&mut keys) => return Ok(leave(&name, screen, Left::Detached)),
            signal = signals.next() => return Ok(leave(&name, screen, Left::Signal(signal))),
        }
    }
}

fn leave(name: &str, mut screen: Screen, left: Left) -> ExitCode {
    // The reader may be gone.
    let _ = screen.close();
    if std::io::stderr().is_terminal() {
        eprintln!(
            "Detached from {name}, which goes on: `fiber attach {name}` follows it again, `fiber \
             kill {name}` ends it"
        );
    }
    match left {
        Left::Detached => ExitCode::SUCCESS,
        Left::Signal(signal) => ExitCode::from(killed_by(signal)),
    }
}
