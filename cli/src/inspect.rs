//! The client of the inspectors: asks a session's head what the session is doing.

pub(crate) mod local;
pub(crate) mod sessions;
pub(crate) mod target;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::io;
use std::time::Duration;

use anyhow::anyhow;
use fiber_backends::cluster::ByteStream;
use fiber_core::ProcessId;
use fiber_core::inspect::{Answer, Request};
use fiber_core::stats::SessionStats;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::time::timeout;

/// The limit for an answer that the head has at hand.
const ANSWER: Duration = Duration::from_secs(5);
/// The limit for an answer of a process below the head.
const RELAYED: Duration = Duration::from_secs(15);
/// The longest answer in bytes: the stats of 1024 workers take about one million.
const LONGEST: u64 = 256 << 20;

/// A connection to the inspector of a session's head.
pub(crate) struct Inspector {
    /// The head, as errors name it: `pid 4711`.
    head: String,
    stream: BufStream<Box<dyn ByteStream>>,
}

impl Inspector {
    pub(crate) fn new(head: String, stream: Box<dyn ByteStream>) -> Inspector {
        Inspector { head, stream: BufStream::new(stream) }
    }

    /// Returns the session's figures.
    pub(crate) async fn stats(&mut self) -> Result<SessionStats, InspectError> {
        self.request(&Request::Stats, ANSWER).await
    }

    /// Returns the stacks of a process's threads, as text.
    pub(crate) async fn stack(&mut self, process: ProcessId) -> Result<String, InspectError> {
        self.request(&Request::Stack { process }, RELAYED).await
    }

    /// Returns a profile of a process: a line for each stack, with the number of its samples.
    pub(crate) async fn profile(
        &mut self,
        process: ProcessId,
        seconds: f64,
        hertz: u32,
        idle: bool,
    ) -> Result<String, InspectError> {
        let request = Request::Profile { process, seconds, hertz, idle };
        self.request(&request, RELAYED + Duration::from_secs_f64(seconds)).await
    }

    /// Sends a request and returns its result. After an error, the next request needs a new
    /// connection, unless it was [`InspectError::Refused`].
    pub(crate) async fn request<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<T, InspectError> {
        let head = &self.head;
        let answer = match timeout(limit, exchange(&mut self.stream, request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(InspectError::ended(head, &error)),
            Err(_) => return Err(InspectError::silent(head, limit)),
        };
        match serde_json::from_str::<Answer<T>>(&answer) {
            Ok(Answer::Ok(result)) => Ok(result),
            Ok(Answer::Error(problem)) => Err(InspectError::Refused(problem)),
            Err(error) => Err(InspectError::Unknown(format!(
                "{head} answers in a form that this command does not know ({error}): use the \
                 command of the same version of fiber as the program"
            ))),
        }
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").field("head", &self.head).finish()
    }
}

async fn exchange(
    stream: &mut BufStream<Box<dyn ByteStream>>,
    request: &Request,
) -> io::Result<String> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_line(&mut answer).await?;
    if answer.ends_with('\n') { Ok(answer) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Why there is no answer of an inspector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InspectError {
    /// The head does not answer: it is stopped, or hangs.
    Silent(String),
    /// The head has ended.
    Ended(String),
    /// The head answered that it can't.
    Refused(String),
    /// The command may not reach it, or does not understand its answer.
    Unknown(String),
}

impl InspectError {
    fn silent(head: &str, limit: Duration) -> InspectError {
        InspectError::Silent(format!(
            "{head} does not answer within {limit:?}: it may be stopped (SIGSTOP, Ctrl-Z), or its \
             host has no time for it"
        ))
    }

    fn ended(head: &str, error: &io::Error) -> InspectError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused => {
                InspectError::Ended(format!("the session of {head} has ended"))
            }
            _ => InspectError::Unknown(format!("{head} can't be asked: {error}")),
        }
    }
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (InspectError::Silent(problem)
        | InspectError::Ended(problem)
        | InspectError::Refused(problem)
        | InspectError::Unknown(problem)) = self;
        f.write_str(problem)
    }
}

impl std::error::Error for InspectError {}

impl From<fiber_core::Error> for InspectError {
    fn from(error: fiber_core::Error) -> InspectError {
        InspectError::Unknown(crate::message(&anyhow!(error)))
    }
}
