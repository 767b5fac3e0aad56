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
        // A reader that stops early, like `head`, is no failure.
        ForwardEnd::ReaderGone => ExitCode::SUCCESS,
    })
}

/// The reason why forwarding has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardEnd {
    /// The output is complete.
    Complete,
    /// The reader of this command's output is gone.
    ReaderGone,
}

/// Forwards output to this command's own streams.
pub(crate) async fn forward(
    mut output: LocalBoxStream<'_, fiber_core::Result<OutputChunk>>,
) -> anyhow::Result<ForwardEnd> {
    while let Some(chunk) = output.next().await {
        let written = match chunk? {
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
