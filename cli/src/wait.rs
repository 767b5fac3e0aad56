//! `fiber wait`, and the ends of sessions.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use fiber_backends::cluster::{Cluster, ExitStatus};
use fiber_core::stats::ProcessRole;
use futures_util::future::join_all;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::args;
use crate::inspect::sessions::{Head, Sessions};
use crate::inspect::target;
use crate::sessions::{self, Named};
use crate::{ExitError, connect};

/// The exit code if the time is over, as with `timeout`.
const TIMED_OUT: u8 = 124;

pub(crate) async fn wait(args: &args::Wait) -> anyhow::Result<ExitCode> {
    let waiting = async {
        match args.cluster.is_local()? {
            true => wait_locally(args).await,
            false => wait_in_cluster(args, &*connect(&args.cluster).await?).await,
        }
    };
    match args.timeout {
        None => waiting.await,
        Some(limit) => timeout(limit, waiting).await.unwrap_or_else(|_| {
            let time = humantime::format_duration(limit);
            bail!(ExitError { code: TIMED_OUT, problem: format!("no end within {time}") })
        }),
    }
}

async fn wait_in_cluster(args: &args::Wait, cluster: &dyn Cluster) -> anyhow::Result<ExitCode> {
    let mut heads = Vec::new();
    for name in &args.names {
        let found = sessions::find(cluster, name).await?;
        sessions::must_be_in_cluster(found.process())?;
        match found {
            Named::Session(session) => heads.push(session.head.name),
            Named::Worker(worker, head) => {
                bail!("{} is a worker of {head}, which replaces it when it ends", worker.name)
            }
        }
    }
    let ends = heads.iter().map(|head| async move {
        let ended = cluster.wait(head).await?;
        println!("{head} ended with exit code {}", ended.code);
        Ok(report(head, &ended))
    });
    let codes = join_all(ends).await.into_iter().collect::<anyhow::Result<Vec<u8>>>()?;
    Ok(ExitCode::from(codes.into_iter().find(|code| *code != 0).unwrap_or(0)))
}

async fn wait_locally(args: &args::Wait) -> anyhow::Result<ExitCode> {
    let observed = Sessions::connect(&args.cluster).await?.look().await?;
    let mut ends = Vec::new();
    for name in &args.names {
        let target = target::find(&observed, name)?;
        match &target.head {
            Head::Local(head) if target.role == ProcessRole::Head => ends.push(local_end(head.pid)),
            _ => bail!("{} is no program of this host: wait for its head", target.name),
        }
    }
    let ends = join_all(ends).await;
    Err(ends.into_iter().next().unwrap_or_else(|| anyhow!("there is nothing to wait for")))
}

/// Waits for the end of a program on this host, and returns the problem with its exit code: the
/// system tells it only to the process that has started the program.
pub(crate) async fn local_end(pid: u32) -> anyhow::Error {
    let (sender, ended) = oneshot::channel();
    // A thread: the end of this command does not wait for it.
    std::thread::spawn(move || sender.send(wait_for_process(pid)));
    match ended.await.unwrap_or(Ok(())) {
        Ok(()) => anyhow!("pid {pid} has ended; its exit code is known where it was started"),
        Err(error) => anyhow!("the end of pid {pid} can't be waited for: {error}"),
    }
}

fn wait_for_process(pid: u32) -> Result<(), Errno> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => Ok(()),
        opened => poll(&mut [PollFd::new(&opened?, PollFlags::IN)], None).map(drop),
    }
}

/// Says why a session ended, if that is known, and returns its exit code.
pub(crate) fn report(name: &str, ended: &ExitStatus) -> u8 {
    if let Some(reason) = &ended.reason {
        eprintln!("{name} ended: {reason}");
    }
    u8::try_from(ended.code).unwrap_or(u8::MAX)
}
