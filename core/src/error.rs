//! What can go wrong, for callers.

mod debug;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, ExitReason};
use crate::panics::Panic;

/// `Result` with fiber's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, where, and what to do about it.
///
/// `{:?}` shows the same text as `{}`, so that `main` and `unwrap` print it as well; after it comes
/// the [`backtrace`](Error::backtrace), if there is one. `{:#?}` shows the variant with its fields.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `fiber::init()` was not called in this program.
    #[error(
        "fiber is not initialised in this program: make `fiber::init();` the first line of `main`, or put \
         `#[fiber::main]` on it (in tests: `fiber::test_harness!();` at the top of the file). Without it a worker \
         process would run the program's `main` again instead of its tasks"
    )]
    NotInitialised,
    /// The configuration is wrong.
    #[error("wrong configuration: {0}")]
    Config(String),
    /// A builder or method was given something that it can't use.
    #[error("{what}: {problem}")]
    Invalid {
        /// What was set or called.
        what: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A process could not be started, or ended before it was ready.
    #[error("`{name}` could not be started: {problem}")]
    Start {
        /// Its name.
        name: String,
        /// Why, and what to do.
        problem: String,
    },
    /// A process ended before its work was done.
    #[error("process `{name}` {exit}")]
    Exited {
        /// Its name.
        name: String,
        /// Why, and what it printed last.
        exit: Exit,
    },
    /// A task failed by itself: it returned an error or panicked, or its arguments or result could
    /// not be carried.
    #[error("task {index} (`{function}`) {failure}")]
    Task {
        /// The function's name.
        function: &'static str,
        /// Which task of its call, counted from 0.
        index: u64,
        /// What happened.
        failure: Failure,
    },
    /// A task's workers died while they ran it, or were killed because it ran past its timeout, as
    /// often as is allowed.
    #[error("task {index} (`{function}`) {}", abandoned(*deaths, exit))]
    WorkerDied {
        /// The function's name.
        function: &'static str,
        /// Which task of its call, counted from 0.
        index: u64,
        /// How many workers it cost, timeouts included.
        deaths: u32,
        /// Why the last one ended: [`ExitReason::TaskTimedOut`] after a timeout.
        exit: Exit,
    },
    /// The call was cancelled.
    #[error("the call of `{function}` was cancelled")]
    Cancelled {
        /// The function's name.
        function: &'static str,
    },
    /// The pool takes no more tasks, or ended with tasks undone.
    #[error("pool `{pool}` {state}")]
    PoolEnded {
        /// Its name.
        pool: String,
        /// Whether it was closed, terminated, dropped, or failed, and why.
        state: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// A value could not be serialised.
    #[error("a value of type `{what}` can't be serialised: {problem}")]
    Encode {
        /// Its type.
        what: &'static str,
        /// serde's words.
        problem: String,
    },
    /// A value could not be deserialised.
    #[error(
        "a value of type `{what}` can't be deserialised: {problem} (do its `Serialize` and `Deserialize` match each other?)"
    )]
    Decode {
        /// Its type.
        what: &'static str,
        /// serde's words.
        problem: String,
    },
    /// A message is larger than is allowed.
    #[error(
        "{what} takes {size} bytes, which is more than `max_message` allows ({limit}): send less at a time, or raise it"
    )]
    TooLarge {
        /// What was to be sent.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A reference names no function of this program.
    #[error(
        "no function is at offset {offset:#x} in build {build}: does the sender run another build?"
    )]
    UnknownEntry {
        /// The offset.
        offset: u64,
        /// This process's build.
        build: String,
    },
    /// `.wait()` was called on a thread that has to run for the wait to end.
    #[error(
        "`.wait()` was called on fiber's own thread, which would then wait for itself for ever: use `.await` here, or \
         call it from another thread"
    )]
    WouldDeadlock,
    /// An actor can't be reached.
    #[error("actor `{name}` {reason}")]
    ActorStopped {
        /// Its name.
        name: String,
        /// Why it ended.
        reason: ExitReason,
    },
    /// An actor did not answer a message because of what happened in its handler, or to the message
    /// on its way.
    #[error("actor `{actor}` {failure} (handling `{message}`)")]
    Call {
        /// Its name.
        actor: String,
        /// The message's type.
        message: &'static str,
        /// What happened.
        failure: Failure,
    },
    /// More messages wait for an actor than its mailbox holds.
    #[error(
        "the mailbox of actor `{name}` is full ({capacity} messages): send less at a time, or make it larger"
    )]
    MailboxFull {
        /// Its name.
        name: String,
        /// How many messages it holds.
        capacity: usize,
    },
    /// A queue, pipe, lock or other shared object is gone with the process that made it.
    #[error(
        "{what} is gone: its owner {reason} (it lives no longer than the process that made it)"
    )]
    OwnerEnded {
        /// What it is, and where it was made.
        what: String,
        /// Why its owner ended, or why it can't be reached.
        reason: ExitReason,
    },
    /// A queue was closed, or the other end of a pipe is gone, and nothing is left in it.
    #[error("{what} {how}")]
    Closed {
        /// What it is, and where it was made.
        what: String,
        /// What closed it.
        how: &'static str,
    },
    /// A handle came from another run of a program.
    #[error(
        "the handle of `{name}` is of another session: handles are of use only to the processes of the program that made \
         them, while it runs"
    )]
    OtherSession {
        /// What it is a handle of.
        name: String,
    },
    /// A node of a ring died, which ended the ring's run.
    #[error("ring `{ring}` {verdict}: its rank {rank} {exit}")]
    RankDied {
        /// The ring's name.
        ring: String,
        /// What became of the ring, and why.
        verdict: String,
        /// The rank of the node that died.
        rank: usize,
        /// Why it died, and what it printed last.
        exit: Box<Exit>,
    },
    /// The nodes of a ring could not go on together.
    #[error("ring `{ring}`: {problem}")]
    Ring {
        /// Its name.
        ring: String,
        /// Which ranks, in which operation, and what is wrong.
        problem: String,
    },
    /// The system refused something.
    #[error("{what}: {problem}")]
    System {
        /// What was tried.
        what: String,
        /// The system's words.
        problem: String,
    },
}

impl Error {
    /// Where the function of [`Error::Task`] or [`Error::Call`] panicked, if it did in a process
    /// for which `RUST_BACKTRACE` is set. Children inherit the variable.
    pub fn backtrace(&self) -> Option<&str> {
        match self {
            Error::Task { failure, .. } | Error::Call { failure, .. } => failure.backtrace(),
            _ => None,
        }
    }

    /// Says that the program was built without `what`, and how to add the `feature` that has it.
    #[doc(hidden)]
    pub fn missing_feature(what: &str, feature: &str) -> Error {
        Error::Config(format!(
            "this program was built without {what}: add fiber's feature `{feature}` \
             (cargo add fiber --features {feature}) and build it again"
        ))
    }

    /// A refusal of the system.
    pub fn system(what: impl Into<String>, problem: impl fmt::Display) -> Error {
        Error::System { what: what.into(), problem: problem.to_string() }
    }
}

fn abandoned(workers: u32, exit: &Exit) -> String {
    match exit.reason {
        ExitReason::TaskTimedOut(_) if workers == 1 => format!("timed out: its worker {exit}"),
        _ => format!(
            "was given up: {workers} of its workers died while they ran it; the last one {exit}"
        ),
    }
}

/// A task's own failure, as it travels from the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// In words.
    pub message: String,
    backtrace: Option<Backtrace>,
}

/// A backtrace, whose lines stay lines in `{:#?}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Backtrace(String);

impl fmt::Debug for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            FailureKind::Returned => "failed",
            FailureKind::Panicked => "panicked",
            FailureKind::Arguments => "could not read its arguments",
            FailureKind::Result => "could not give its result back",
            FailureKind::Unknown => "could not be run",
        };
        write!(f, "{what}: {}", self.message)
    }
}

impl Failure {
    /// A failure of the given kind.
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Failure {
        Failure { kind, message: message.to_string(), backtrace: None }
    }

    /// Where the function panicked, if it did in a process for which `RUST_BACKTRACE` is set.
    pub fn backtrace(&self) -> Option<&str> {
        self.backtrace.as_ref().map(|backtrace| backtrace.0.as_str())
    }
}

impl From<Panic> for Failure {
    fn from(panic: Panic) -> Failure {
        let backtrace = panic.backtrace.map(Backtrace);
        Failure { kind: FailureKind::Panicked, message: panic.message, backtrace }
    }
}

/// The kinds of a task's own failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// It returned an `Err`.
    Returned,
    /// It panicked.
    Panicked,
    /// Its arguments could not be deserialised.
    Arguments,
    /// Its result could not be serialised, or was too large.
    Result,
    /// The worker does not know its function.
    Unknown,
}
