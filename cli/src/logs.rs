//! `fiber logs`, and the output of attached runs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use anyhow::{Context, bail};
use fiber_backends::cluster::OutputChunk;
use futures_util::stream::{LocalBoxStream, StreamExt};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use crate::args::ClusterArgs;
use crate::connect;
use crate::inspect::sessions::Sessions;
use crate::inspect::target::Target;
use crate::sessions::{self, Named};
use crate::terminal::{has_reader, warn, write_chunk};

pub(crate) async fn logs(
    args: &ClusterArgs,
    name: &str,
    follow: bool,
    tail: Option<u64>,
) -> anyhow::Result<ExitCode> {
    let cluster = &*connect(args).await?;
    let (process, session) = match sessions::find(args, cluster, name).await {
        Ok(Named::Session(session)) => (session.head, None),
        Ok(Named::Job(process, session)) => (process, Some(session)),
        Ok(Named::Inside(target)) => {
            return last_lines(&mut Sessions::connect(args).await?, target, follow, tail).await;
        }
        Err(problem) => {
            // The engine may not answer, where its file can be read.
            let Some(output) = cluster.logs_at_hand(name, follow, tail)? else {
                return Err(problem);
            };
            warn(format!("{problem:#}: the output of {name} so far follows"));
            forward(output).await?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    sessions::must_be_in_cluster(&process)?;
    if let Some(session) = session.filter(|_| !process.has_output) {
        let mut sessions = Sessions::connect(args).await?;
        let name = format!("{session}/{}", process.name);
        let observed = sessions.look().await?;
        let target = sessions.find(&observed, &name).await?;
        return last_lines(&mut sessions, target, follow, tail).await;
    }
    let output = cluster.logs(&process.job, follow, tail).await?;
    // A reader that stops early, like `head`, is no failure.
    forward(output).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the last lines of a process's output, as its head knows them.
async fn last_lines(
    sessions: &mut Sessions,
    target: Target,
    follow: bool,
    tail: Option<u64>,
) -> anyhow::Result<ExitCode> {
    if follow {
        bail!(
            "only the last lines of {} are known, so they can't be followed: its output goes to \
             that of {}, or to files (`output`, `log_dir`)",
            target.name,
            target.head.name
        );
    }
    let stats = sessions.take(&target.head).await?.stats().await?;
    let process = stats.report.process(target.process);
    let lines = &process.with_context(|| format!("{} has ended meanwhile", target.name))?.tail;
    let first = lines.len().saturating_sub(tail.map_or(usize::MAX, |tail| tail as usize));
    lines[first..].iter().for_each(|line| say!("{line}"));
    Ok(ExitCode::SUCCESS)
}

/// The reason why forwarding has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardEnd {
    /// The output is complete.
    Complete,
    /// The reader of this command's output is gone.
    ReaderGone,
    /// The terminal that shows this command's output is gone.
    TerminalGone,
}

/// Forwards output to this command's own streams.
pub(crate) async fn forward(
    mut output: LocalBoxStream<'_, fiber_core::Result<OutputChunk>>,
) -> anyhow::Result<ForwardEnd> {
    while let Some(chunk) = output.next().await {
        match has_reader(write_chunk(&chunk?)) {
            Ok(true) => {}
            Ok(false) => return Ok(ForwardEnd::ReaderGone),
            Err(error) if is_lost_terminal(&error) => return Ok(ForwardEnd::TerminalGone),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ForwardEnd::Complete)
}

/// Returns whether an error of this command's output means that its terminal is gone: such a one is no
/// terminal any more to `isatty`.
fn is_lost_terminal(error: &io::Error) -> bool {
    let is_device = |stream: BorrowedFd<'_>| {
        let kind = fstat(stream).map(|stat| FileType::from_raw_mode(stat.st_mode));
        kind == Ok(FileType::CharacterDevice)
    };
    Errno::from_io_error(error) == Some(Errno::IO)
        && (is_device(io::stdout().as_fd()) || is_device(io::stderr().as_fd()))
}
