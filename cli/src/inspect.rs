//! The client of the inspectors: asks a session's head what the session is doing.

pub(crate) mod outside;
pub(crate) mod sessions;
pub(crate) mod target;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::io;
use std::time::Duration;

use fiber_backends::cluster::ByteStream;
use fiber_core::inspect::{Answer, Request};
use fiber_core::stats::SessionStats;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::time::timeout;

/// The limit for an answer that the head has at hand.
const ANSWER: Duration = Duration::from_secs(5);
/// The limit for an answer of a process below the head, of which another one reads the names of
/// functions, or that looks at many keys.
const RELAYED: Duration = Duration::from_secs(30);
/// The limit for the end of a process below the head that is killed.
const KILLED: Duration = Duration::from_secs(25);
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

    /// Returns the session's statistics.
    pub(crate) async fn stats(&mut self) -> Result<SessionStats, InspectError> {
        self.request(&Request::Stats).await
    }

    /// Sends a request and returns its result. After an error, the next request needs a new
    /// connection, unless it was [`InspectError::Refused`].
    pub(crate) async fn request<T: DeserializeOwned>(
        &mut self,
        request: &Request,
    ) -> Result<T, InspectError> {
        let (head, limit) = (&self.head, limit(request));
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

/// Returns the command that lets a stopped process of this host go on.
pub(crate) fn continuing(pid: u32) -> String {
    format!("kill -CONT {pid}")
}

/// Returns the time limit for the answer to a request.
fn limit(request: &Request) -> Duration {
    match request {
        Request::Stats | Request::Timeline { .. } => ANSWER,
        Request::Stack { .. } | Request::EntityKeys { .. } | Request::Entity { .. } => RELAYED,
        Request::Profile { seconds, .. } => RELAYED + Duration::from_secs_f64(*seconds),
        Request::Kill { grace, .. } => KILLED + Duration::from_secs_f64(*grace),
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
    /// The head does not answer in time.
    Silent(String),
    /// The head is stopped.
    Stopped(String),
    /// The head has ended.
    Ended(String),
    /// The head answered that it can't.
    Refused(String),
    /// The command may not reach it, or does not understand its answer.
    Unknown(String),
}

impl InspectError {
    fn stopped(head: &str, pid: u32) -> InspectError {
        InspectError::Stopped(format!(
            "{head} does not answer: it is stopped (SIGSTOP, Ctrl-Z), and `{}` lets it go on",
            continuing(pid)
        ))
    }

    fn silent(head: &str, limit: Duration) -> InspectError {
        InspectError::Silent(format!(
            "{head} does not answer within {limit:?}: it may be stopped (SIGSTOP, Ctrl-Z), or its \
             host has no time for it"
        ))
    }

    /// Returns why a head can't be connected with. The end of a program of this host is known.
    fn of_connecting(head: &str, error: fiber_core::Error) -> InspectError {
        let system = match &error {
            fiber_core::Error::System { cause, .. } => cause.downcast_ref::<io::Error>(),
            _ => None,
        };
        match system {
            Some(system) => InspectError::ended(head, system),
            None => InspectError::Unknown(error.to_string()),
        }
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
        | InspectError::Stopped(problem)
        | InspectError::Ended(problem)
        | InspectError::Refused(problem)
        | InspectError::Unknown(problem)) = self;
        f.write_str(problem)
    }
}

impl std::error::Error for InspectError {}

#[cfg(test)]
mod tests {
    use fiber_backends::cluster::SessionHead;

    use super::sessions::Sessions;
    use super::testing::{FakeHead, head_here, stats};
    use super::*;

    fn stack(process: fiber_core::ProcessId) -> Request {
        Request::Stack { process, all: false }
    }

    async fn own_heads() -> Vec<SessionHead> {
        Sessions::of_host().heads().await.unwrap().0
    }

    async fn connect(head: &FakeHead) -> Inspector {
        Sessions::of_host().take(&head.session_head()).await.unwrap()
    }

    #[tokio::test]
    async fn a_head_is_found_and_answers_until_it_ends() {
        let head = FakeHead::start(stats("squares", 3));
        let own = head.session_head();
        assert!(own_heads().await.contains(&own));
        let mut inspector = connect(&head).await;
        for _ in 0..2 {
            let stats = inspector.stats().await.unwrap();
            assert_eq!((stats.program.as_str(), stats.report.processes.len()), ("squares", 4));
        }
        let id = head.stats.report.processes[1].id;
        let text: String = inspector.request(&stack(id)).await.unwrap();
        assert_eq!(text, format!("the stack of {id}\n"));
        head.end();
        let problem = inspector.stats().await.unwrap_err();
        assert!(matches!(&problem, InspectError::Ended(_)), "{problem:?}");
        assert!(problem.to_string().contains(&format!("pid {}", std::process::id())));
        assert!(!own_heads().await.contains(&own));
        let problem = Sessions::of_host().take(&own).await.unwrap_err();
        assert!(matches!(&problem, InspectError::Ended(_)), "{problem:?}");
    }

    #[tokio::test]
    async fn a_head_that_does_not_answer_is_named() {
        let session = 0x51e7_0000_0000_0000 + u64::from(std::process::id());
        let (_listener, socket) = fiber_core::inspect::listen(session).unwrap();
        let inspector = socket.to_str().unwrap().into();
        let head = SessionHead { inspector, ..head_here(std::process::id()) };
        let mut inspector = Sessions::of_host().take(&head).await.unwrap();
        tokio::time::pause();
        let problem = inspector.stats().await.unwrap_err();
        assert!(matches!(&problem, InspectError::Silent(_)), "{problem:?}");
        assert!(problem.to_string().contains(&head.name), "{problem}");
    }

    #[tokio::test]
    async fn an_answer_in_another_form_is_explained() {
        let head = FakeHead::answering("{\"ok\":{\"session\":3}}\n");
        let problem = connect(&head).await.stats().await.unwrap_err();
        assert!(problem.to_string().contains("same version"), "{problem}");
    }

    #[tokio::test]
    async fn a_refusal_keeps_the_connection() {
        let head = FakeHead::start(stats("squares", 1));
        let mut inspector = connect(&head).await;
        let gone = fiber_core::ProcessId(0);
        let problem = inspector.request::<String>(&stack(gone)).await.unwrap_err();
        assert!(matches!(&problem, InspectError::Refused(_)), "{problem:?}");
        assert!(inspector.stats().await.is_ok());
    }
}
