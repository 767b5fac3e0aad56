//! `fiber attach`: follows a session that runs elsewhere.

mod keys;
mod progress;
mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, bail};
use fiber_backends::cluster::{self, Cluster, Location, SessionHead, SessionProcess};
use fiber_core::Signals;
use futures_util::StreamExt;
use futures_util::stream::pending;

use self::keys::Keys;
use self::progress::Progress;
use self::screen::Screen;
use crate::args;
use crate::run::READER_GONE;
use crate::sessions;
use crate::wait::report;
use crate::{connect, killed_by};

pub(crate) async fn attach(args: &args::Attach) -> anyhow::Result<ExitCode> {
    let cluster = connect(&args.cluster).await?;
    let found = sessions::find(&args.cluster, &*cluster, &args.name).await?;
    let session = found.session("attach to that, or see `fiber logs`")?;
    match session.head.location {
        Location::Cluster => follow(args, &*cluster, &session.head).await,
        Location::Host => {
            let host = cluster::host();
            let is_here = |head: &SessionHead| head.name == session.head.name;
            if !host.heads().await?.iter().flatten().any(is_here) {
                bail!("`{}` is not on this host", args.name);
            }
            follow(args, &*host, &session.head).await
        }
    }
}

/// Follows a session to its end: its output, if the cluster has it, and its progress.
async fn follow(
    args: &args::Attach,
    cluster: &dyn Cluster,
    head: &SessionProcess,
) -> anyhow::Result<ExitCode> {
    let name = head.name.as_str();
    let mut signals = Signals::listen().context("signal handlers can't be installed")?;
    let mut keys = Keys::of_terminal();
    let mut screen = Screen::new(name, keys.is_some());
    let mut progress = Progress::of_head(&args.cluster, name).await?;
    let mut end = cluster.wait(name);
    let mut ended = None;
    let mut output = match head.has_output {
        true => cluster.logs(name, true, (!args.from_start).then_some(0)).await?,
        false => {
            screen.say(&format!(
                "The output of {name} is where it was started; here are only its progress and its \
                 end."
            ));
            pending().boxed_local()
        }
    };
    loop {
        tokio::select! {
            chunk = output.next() => match chunk {
                Some(chunk) => if !screen.print(chunk?)? {
                    return Ok(ExitCode::from(READER_GONE));
                },
                None => break,
            },
            status = &mut end, if ended.is_none() => {
                ended = Some(status);
                if !head.has_output {
                    break;
                }
            }
            line = progress.next(), if screen.shows_progress() => screen.show(&line),
            () = keys::pressed(&mut keys) => return Ok(leave(name, screen, 0)),
            signal = signals.next() => return Ok(leave(name, screen, killed_by(signal))),
        }
    }
    // The output is complete a moment before the engine knows the exit code.
    let ended = match ended {
        Some(status) => status,
        None => tokio::select! {
            status = &mut end => status,
            signal = signals.next() => return Ok(leave(name, screen, killed_by(signal))),
        },
    };
    screen.close()?;
    Ok(ExitCode::from(report(name, &ended?)))
}

/// Leaves a session that goes on.
fn leave(name: &str, mut screen: Screen, code: u8) -> ExitCode {
    // The reader may be gone.
    let _ = screen.close();
    if std::io::stderr().is_terminal() {
        tell!(
            "Detached from {name}, which goes on: `fiber attach {name}` follows it again, `fiber \
             kill {name}` ends it"
        );
    }
    ExitCode::from(code)
}
