//! The way to the inspector of a head in a container.

use std::future::ready;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use fiber_core::Result;
use futures_util::TryStreamExt;
use tokio_util::io::StreamReader;

use super::engine::{Engine, refusal};
use crate::cluster::bridge::{Greeting, NO_BRIDGE, commands, failed, greeting};
use crate::cluster::session::ByteStream;

/// Connects to the inspector of the head in a container.
pub(super) async fn connect(engine: &Engine, name: &str) -> Result<Box<dyn ByteStream>> {
    let details = match engine.api.inspect_container(name, None).await {
        Ok(details) => details,
        Err(error) => return failed(name, engine.explain(&error)),
    };
    let words = details.path.iter().chain(details.args.iter().flatten());
    for command in commands(words.map(String::as_str)) {
        let mut stream = match execute(engine, name, command).await {
            Ok(Some(stream)) => stream,
            // The engine could not execute this command.
            Ok(None) => continue,
            Err(error) => return failed(name, engine.explain(&error)),
        };
        match greeting(&mut stream).await {
            Greeting::Ready => return Ok(stream),
            Greeting::Failed(problem) => return failed(name, problem),
            Greeting::Other => {}
        }
    }
    failed(name, NO_BRIDGE)
}

/// Runs a command in the container. Returns `None` if the engine can't execute it.
async fn execute(
    engine: &Engine,
    name: &str,
    command: [String; 2],
) -> std::result::Result<Option<Box<dyn ByteStream>>, bollard::errors::Error> {
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(command.to_vec()),
        ..Default::default()
    };
    let created = engine.api.create_exec(name, options).await?;
    match engine.api.start_exec(&created.id, None::<StartExecOptions>).await {
        Ok(StartExecResults::Attached { output, input }) => {
            let stdout = output.map_err(std::io::Error::other).try_filter_map(|part| {
                ready(Ok(match part {
                    LogOutput::StdOut { message } | LogOutput::Console { message } => Some(message),
                    _ => None,
                }))
            });
            Ok(Some(Box::new(tokio::io::join(StreamReader::new(stdout), input))))
        }
        Ok(StartExecResults::Detached) => Ok(None),
        Err(error) if refusal(&error).is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
