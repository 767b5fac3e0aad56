//! `fiber logs`, and the output of attached runs.

use std::io::{self, Write};
use std::process::ExitCode;

use fiber_backends::cluster::{Cluster, Output};
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
    Ok(match pass_on(output).await? {
        Passed::All => ExitCode::SUCCESS,
        // Nobody wants to read more: that is no failure.
        Passed::ReaderGone => ExitCode::SUCCESS,
    })
}

/// How output came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// There is no more.
    All,
    /// Whoever read this command's own output has gone.
    ReaderGone,
}

/// Writes output to this command's own streams.
pub(crate) async fn pass_on(
    mut output: LocalBoxStream<'_, fiber_core::Result<Output>>,
) -> anyhow::Result<Passed> {
    while let Some(part) = output.next().await {
        let written = match part? {
            Output::Out(bytes) => write(io::stdout().lock(), &bytes),
            Output::Error(bytes) => write(io::stderr().lock(), &bytes),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(Passed::ReaderGone);
            }
            written => written?,
        }
    }
    Ok(Passed::All)
}

fn write(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
