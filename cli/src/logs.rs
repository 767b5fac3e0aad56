//! `fiber logs`, and the output of attached runs.

use std::io::{self, Write};
use std::process::ExitCode;

use fiber_backends::cluster::{Cluster, OutputChunk};
use futures_util::stream::{LocalBoxStream, StreamExt};

use crate::sessions;

pub(crate) async fn logs(
    cluster: &dyn Cluster,
    name: &str,
    follow: bool,
    tail: Option<u64>,
) -> anyhow::Result<ExitCode> {
    let found = sessions::find(cluster, name).await?;
    sessions::must_be_in_cluster(found.process())?;
    let output = cluster.logs(&found.process().name, follow, tail).await?;
    Ok(match forward(output).await? {
        ForwardEnd::Complete => ExitCode::SUCCESS,
        // Nobody wants to read more: that is no failure.
        ForwardEnd::ReaderGone => ExitCode::SUCCESS,
    })
}

/// How output came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardEnd {
    /// There is no more.
    Complete,
    /// Whoever read this command's own output has gone.
    ReaderGone,
}

/// Writes output to this command's own streams.
pub(crate) async fn forward(
    mut output: LocalBoxStream<'_, fiber_core::Result<OutputChunk>>,
) -> anyhow::Result<ForwardEnd> {
    while let Some(part) = output.next().await {
        let written = match part? {
            OutputChunk::Stdout(bytes) => write(io::stdout().lock(), &bytes),
            OutputChunk::Stderr(bytes) => write(io::stderr().lock(), &bytes),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ForwardEnd::ReaderGone);
            }
            written => written?,
        }
    }
    Ok(ForwardEnd::Complete)
}

fn write(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
