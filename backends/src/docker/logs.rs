//! The output of a container that its engine may start again.

use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use bollard::query_parameters::LogsOptions;
use bytes::Buf;
use fiber_core::{Error, Result};
use futures_util::StreamExt;
use futures_util::stream::LocalBoxStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::engine::{Engine, found};
use crate::cluster::session::OutputChunk;

/// The pause before a container that starts again is looked at again.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// The number of output chunks that may wait for the reader.
const CHUNKS: usize = 16;

/// Returns the output of a container from its beginning, or the last `tail` lines; with `follow`
/// until it has ended and is not started again.
pub(super) fn read(
    engine: Engine,
    name: String,
    follow: bool,
    tail: Option<u64>,
) -> LocalBoxStream<'static, Result<OutputChunk>> {
    let (sender, chunks) = mpsc::channel(CHUNKS);
    fiber_core::spawn_local(async move {
        if let Err(error) = send_all(&engine, &name, follow, tail, &sender).await {
            let error = Error::system(
                format!("the output of {name} can't be read"),
                engine.explain(&error),
            );
            // The reader may be gone.
            let _ = sender.send(Err(error)).await;
        }
    });
    ReceiverStream::new(chunks).boxed_local()
}

/// The engine ends a followed log with each end of the container, so each start of the container
/// needs another request. That one skips what earlier ones have brought, by its time.
async fn send_all(
    engine: &Engine,
    name: &str,
    follow: bool,
    tail: Option<u64>,
    chunks: &mpsc::Sender<Result<OutputChunk>>,
) -> Result<(), EngineError> {
    let mut tail = tail.map_or("all".into(), |lines| lines.to_string());
    let (mut sent, mut latest) = (None, None);
    loop {
        let options = LogsOptions {
            follow,
            stdout: true,
            stderr: true,
            timestamps: follow,
            tail: std::mem::replace(&mut tail, "all".into()),
            ..Default::default()
        };
        let mut log = engine.api.logs(name, Some(options));
        while let Some(output) = log.next().await {
            let Some(mut chunk) = chunk_of(output?) else { continue };
            if follow {
                let Some(time) = take_time(&mut chunk) else { continue };
                if Some(&time) <= sent.as_ref() {
                    continue;
                }
                latest = latest.max(Some(time));
            }
            if chunks.send(Ok(chunk)).await.is_err() {
                return Ok(());
            }
        }
        if !follow {
            return Ok(());
        }
        loop {
            let details = found(engine.api.inspect_container(name, None).await)?;
            let Some(state) = details.and_then(|details| details.state) else { return Ok(()) };
            if state.running != Some(true) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
            if state.restarting != Some(true) {
                let ended = state.finished_at.as_deref().map(sortable);
                sent = latest.clone().or(ended);
                break;
            }
        }
    }
}

fn chunk_of(output: LogOutput) -> Option<OutputChunk> {
    match output {
        LogOutput::StdErr { message } => Some(OutputChunk::Stderr(message)),
        LogOutput::StdOut { message } | LogOutput::Console { message } => {
            Some(OutputChunk::Stdout(message))
        }
        LogOutput::StdIn { .. } => None,
    }
}

/// Takes the time off a piece of output.
fn take_time(chunk: &mut OutputChunk) -> Option<String> {
    let (OutputChunk::Stdout(message) | OutputChunk::Stderr(message)) = chunk;
    let length = message.iter().position(|byte| *byte == b' ')?;
    let time = sortable(std::str::from_utf8(&message[..length]).ok()?);
    message.advance(length + 1);
    Some(time)
}

/// Returns a time of the engine, which is always UTC, in a form whose order is that of time: the
/// fraction may have any number of digits.
fn sortable(time: &str) -> String {
    time.trim_end_matches('Z').to_string()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn times_with_any_number_of_digits_are_ordered() {
        let times = ["T12:00:00Z", "T12:00:00.100000001Z", "T12:00:00.12Z", "T12:00:00.123Z"];
        assert!(times.map(sortable).is_sorted());
    }

    #[test]
    fn the_time_is_no_part_of_the_output() {
        let message = Bytes::from_static(b"2026-11-22T12:00:00.5Z  two words\n");
        let mut chunk = OutputChunk::Stderr(message);
        assert_eq!(take_time(&mut chunk).as_deref(), Some("2026-11-22T12:00:00.5"));
        assert_eq!(chunk, OutputChunk::Stderr(Bytes::from_static(b" two words\n")));
    }
}
