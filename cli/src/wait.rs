//! `fiber wait`, and the ends of sessions.

use std::process::ExitCode;

use anyhow::bail;
use fiber_backends::cluster::{Cluster, ExitStatus};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::args;
use crate::sessions;
use crate::terminal::printable;
use crate::{ExitError, connect};

/// The exit code if the time is over, as with `timeout`.
const TIMED_OUT: u8 = 124;

pub(crate) async fn wait(args: &args::Wait) -> anyhow::Result<ExitCode> {
    let waiting = async { wait_for_all(args, &*connect(&args.cluster).await?).await };
    match args.timeout {
        None => waiting.await,
        Some(limit) => timeout(limit, waiting).await.unwrap_or_else(|_| {
            let time = humantime::format_duration(limit);
            bail!(ExitError { code: TIMED_OUT, problem: format!("no end within {time}") })
        }),
    }
}

async fn wait_for_all(args: &args::Wait, cluster: &dyn Cluster) -> anyhow::Result<ExitCode> {
    let mut heads = Vec::new();
    for name in &args.names {
        let found = sessions::find(&args.cluster, cluster, name).await?;
        let session = found.session("that replaces it when it ends")?;
        sessions::must_be_in_cluster(&session.head)?;
        heads.push(session.head.name);
    }
    let ends = heads.iter().map(|head| async move {
        let ended = cluster.wait(head).await?;
        say!("{} ended with exit code {}", printable(head), ended.code);
        Ok(report(head, &ended))
    });
    let codes = join_all(ends).await.into_iter().collect::<anyhow::Result<Vec<u8>>>()?;
    Ok(ExitCode::from(codes.into_iter().find(|code| *code != 0).unwrap_or(0)))
}

/// Says why a session ended, if that is known, and returns its exit code.
pub(crate) fn report(name: &str, ended: &ExitStatus) -> u8 {
    if let Some(reason) = &ended.reason {
        tell!("{}", printable(format!("{name} ended: {reason}")));
    }
    u8::try_from(ended.code).unwrap_or(u8::MAX)
}
