//! `fiber kill`.

use std::process::ExitCode;

use anyhow::Context;
use fiber_core::Config;
use fiber_core::inspect::Request;

use crate::args::ClusterArgs;
use crate::connect;
use crate::inspect::sessions::Sessions;
use crate::inspect::target::Target;
use crate::sessions::{self, Named};
use crate::terminal::printable;

pub(crate) async fn kill(
    args: &ClusterArgs,
    names: &[String],
    now: bool,
) -> anyhow::Result<ExitCode> {
    let cluster = &*connect(args).await?;
    let grace = if now { 0 } else { grace(&args.config()?) };
    for name in names {
        match sessions::find(args, cluster, name).await? {
            Named::Session(session) => {
                sessions::must_be_in_cluster(&session.head)?;
                let name = &session.head.name;
                sessions::end(cluster, name, grace).await?;
                say!("Killed {} and its workers: {}", printable(name), session.workers.len());
            }
            Named::Job(process, session) => {
                sessions::must_be_in_cluster(&process)?;
                cluster.stop(&process.job, grace).await?;
                cluster.remove(&process.job).await?;
                let (name, place) = (process.name, process.place);
                say!("{}", printable(format!("Killed {name} ({place}), a process of {session}")));
            }
            Named::Inside(target) => {
                end_by_head(&mut Sessions::connect(args).await?, &target, grace).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets the head of a process end it, or the process that has started it.
async fn end_by_head(sessions: &mut Sessions, target: &Target, grace: u32) -> anyhow::Result<()> {
    let request = Request::Kill { process: target.process, grace: grace.into() };
    let ended = sessions.take(&target.head).await?.request::<()>(&request).await;
    ended.with_context(|| format!("{} can't be killed", target.name))?;
    let (name, head) = (&target.name, &target.head.name);
    say!("{}", printable(format!("Killed {name}, a process of {head}")));
    Ok(())
}

/// Returns the grace period for a process to end, in seconds.
pub(crate) fn grace(config: &Config) -> u32 {
    config.shutdown_timeout.as_secs_f64().ceil() as u32
}
