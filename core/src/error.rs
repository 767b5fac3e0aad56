//! The errors that callers get.

mod debug;
mod display;
mod excerpt;
mod failure;
mod reasons;
mod recorded;
mod ring;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::build::BuildId;
use crate::config::ConfigProblem;
use crate::exit::{Exit, ExitReason};
use crate::id::ProcessId;

pub(crate) use self::excerpt::excerpt;
pub use self::failure::{Failure, FailureKind};
pub use self::reasons::{CloseReason, PoolEndReason, RingEndReason};
pub use self::ring::{RankActivity, RingProblem};

/// `Result` with fiber's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An underlying error, for example an [`io::Error`](std::io::Error). Clones of an [`Error`] share
/// it.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// An error of fiber: what went wrong, where, and what the user can do about it.
///
/// `{}` shows the whole message, causes included. `{:?}` shows the same text, so that `main` and
/// `unwrap` print it as well, followed by the [`backtrace`](Error::backtrace) if there is one.
/// `{:#?}` shows the variant with its fields. The fields have the cause as a value: a [`Failure`],
/// an [`Exit`], or an error of the system. [`source`](std::error::Error::source) returns `None`,
/// so that reporters which print sources print each cause once.
///
/// # Examples
/// ```
/// # use fiber_core as fiber;
/// use fiber::{Error, ExitReason};
///
/// fn was_killed(error: &Error) -> bool {
///     match error {
///         Error::Exited { exit, .. } | Error::WorkerDied { exit, .. } => exit.signal().is_some(),
///         Error::ActorStopped { reason, .. } => matches!(reason, ExitReason::Signal(_)),
///         _ => false,
///     }
/// }
/// # assert!(!was_killed(&Error::WouldDeadlock));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// The program did not call `fiber::init()`.
    NotInitialized,
    /// The configuration is wrong.
    Config(ConfigProblem),
    /// A method or a builder's option got an argument that it can't use.
    Invalid {
        /// The method or option, as `Type::method`.
        method: &'static str,
        /// Why the argument can't be used, and which can.
        problem: String,
    },
    /// A process could not be started, or ended before it was ready.
    Start {
        /// Its name.
        name: String,
        /// Why. [`ExitReason::NotStarted`] if there was no process.
        reason: ExitReason,
    },
    /// A process ended before its work was done.
    Exited {
        /// Its name.
        name: String,
        /// Why it ended, and its last output.
        exit: Exit,
    },
    /// A task failed by itself: it returned an error or panicked, or serde could not carry its
    /// arguments or result.
    Task {
        /// The function's name.
        function: &'static str,
        /// The task's index in its call, from 0.
        index: u64,
        /// The failure.
        failure: Failure,
    },
    /// A task was abandoned: its workers died while they ran it, as often as the pool allows.
    WorkerDied {
        /// The function's name.
        function: &'static str,
        /// The task's index in its call, from 0.
        index: u64,
        /// How many workers died, timeouts included.
        deaths: u32,
        /// Why the last one ended, and its last output.
        exit: Exit,
    },
    /// A task was abandoned: it ran past its timeout, as often as the pool allows.
    TaskTimedOut {
        /// The function's name.
        function: &'static str,
        /// The task's index in its call, from 0.
        index: u64,
        /// How many workers died while they ran it: those that the pool killed at the timeout, and
        /// others.
        deaths: u32,
        /// The end of the last one: [`ExitReason::TaskTimedOut`] with the timeout, its last output,
        /// and the stack of the task.
        exit: Exit,
    },
    /// A task did not run, because one of its inputs failed.
    InputFailed {
        /// The function's name.
        function: &'static str,
        /// The task's index in its call, from 0.
        index: u64,
        /// The failure of the task that was to make the input.
        cause: Arc<Error>,
    },
    /// An output of another process has no value.
    OutputFailed {
        /// The failure of the task that was to make the value, as that process says it.
        problem: String,
    },
    /// The producer of a stream failed, or the stream lost items.
    StreamFailed {
        /// The failure, in the words of the process that knows it.
        problem: String,
    },
    /// The call was cancelled.
    Cancelled {
        /// The function's name.
        function: &'static str,
    },
    /// The pool takes no more calls, or ended before it had run all tasks of this one.
    PoolEnded {
        /// Its name.
        name: String,
        /// Why.
        reason: PoolEndReason,
    },
    /// Tasks of a call were not begun, because they would not have ended before the time limit of
    /// the program's allocation. The results that the call had are right.
    TimeLimit {
        /// The function's name.
        function: &'static str,
        /// The usual time of its tasks; zero if none has ended.
        usual: Duration,
        /// The time that was left for tasks.
        left: Duration,
    },
    /// Something did not happen in time.
    TimedOut {
        /// The event that did not happen.
        what: String,
        /// The time limit.
        limit: Duration,
    },
    /// serde could not serialize a value.
    Encode {
        /// The value's type.
        type_name: &'static str,
        /// serde's error.
        cause: Cause,
    },
    /// serde could not deserialize a value.
    Decode {
        /// The value's type.
        type_name: &'static str,
        /// serde's error.
        cause: Cause,
    },
    /// A message is larger than `max_message` allows.
    TooLarge {
        /// The content of the message.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A message names a function that this program does not have: its sender runs another build.
    UnknownEntry {
        /// The function's offset in the sender's program.
        offset: u64,
        /// This process's build.
        build: BuildId,
    },
    /// `.wait()` was called on a thread that has to run for the wait to end: fiber's own thread, or
    /// that of an actor that is to answer, start or end. The request is carried out all the same.
    WouldDeadlock,
    /// This process is a fork of the one that made the pool, actor, queue or other object. Fiber
    /// works in the original only.
    Forked,
    /// The actor has stopped.
    ActorStopped {
        /// Its name.
        name: String,
        /// Why it ended.
        reason: ExitReason,
    },
    /// An actor did not answer a message, because its handler failed or serde could not carry the
    /// message or the answer.
    Call {
        /// The actor's name.
        name: String,
        /// The message's type.
        message: &'static str,
        /// The failure.
        failure: Failure,
    },
    /// One of the actors to which a message was sent at once did not answer it.
    Member {
        /// The actor's place among them, from 0.
        index: usize,
        /// Its name.
        name: String,
        /// Why it did not answer.
        cause: Arc<Error>,
    },
    /// The actor's mailbox is full.
    MailboxFull {
        /// The actor's name.
        name: String,
        /// How many messages the mailbox holds.
        capacity: usize,
    },
    /// No actor has this name.
    NoSuchName {
        /// The name.
        name: String,
    },
    /// Another actor has this name.
    NameTaken {
        /// The name.
        name: String,
        /// The type of the actor that has it.
        holder: String,
        /// The process of that actor, or of its owner.
        process: ProcessId,
    },
    /// A name or a group is for actors or messages of another type.
    OtherType {
        /// The name or group.
        what: String,
        /// Its type.
        found: String,
        /// The type that was asked for.
        asked: &'static str,
    },
    /// A subscription to a topic has ended, because its buffer was full.
    TooSlow {
        /// The topic: its name, or where it was made.
        topic: String,
        /// How many messages were in the buffer when the subscription heard of it.
        waiting: usize,
    },
    /// A group has no members.
    NoMembers {
        /// The group's name.
        group: String,
    },
    /// A queue, pipe, lock or other shared object is gone together with the process that owned it.
    OwnerEnded {
        /// The object: its type, and where it was made.
        what: String,
        /// Why its owner ended, or why it can't be reached.
        reason: ExitReason,
    },
    /// A queue was closed, or the other end of a pipe is gone, and nothing is left in it.
    Closed {
        /// The queue or pipe, and where it was made.
        what: String,
        /// Why it is closed.
        reason: CloseReason,
    },
    /// The handle belongs to another session: another run of a program.
    OtherSession {
        /// The object's name.
        name: String,
    },
    /// A rank of a ring died, which ended the ring's run.
    RankDied {
        /// The ring's name.
        name: String,
        /// Why the ring did not recover.
        reason: RingEndReason,
        /// The rank that died.
        rank: usize,
        /// Why it died, and its last output.
        exit: Box<Exit>,
    },
    /// The ranks of a ring could not continue together.
    Ring {
        /// The ring's name.
        name: String,
        /// Which ranks, in which operation, and what is wrong.
        problem: RingProblem,
    },
    /// A journal can't be read or written. What it has recorded is still there.
    Journal {
        /// The journal's folder.
        journal: PathBuf,
        /// The cause: what went wrong, where, and what to do about it.
        cause: Cause,
    },
    /// The operating system, a container engine or a cluster refused something.
    System {
        /// The operation that failed.
        what: String,
        /// The system's error.
        cause: Cause,
    },
}

impl Error {
    /// Makes an [`Error::Invalid`] about a method or option, written `Type::method`.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// let error = fiber::Error::invalid("Canvas::resize", "the width is 0: use at least 1");
    /// assert!(error.to_string().contains("Canvas::resize"));
    /// ```
    pub fn invalid(method: &'static str, problem: impl Into<String>) -> Error {
        Error::Invalid { method, problem: problem.into() }
    }

    /// Makes an [`Error::Start`] for a process that was not started, with the reason and the remedy
    /// in words, for backends.
    pub fn not_started(name: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Start { name: name.into(), reason: ExitReason::NotStarted(problem.into()) }
    }

    /// Makes an [`Error::Config`] for a `part` of fiber that only programs with `feature` have.
    #[doc(hidden)]
    pub fn missing_feature(part: &'static str, feature: &'static str) -> Error {
        ConfigProblem::MissingFeature { part, feature }.into()
    }

    /// Makes the error of an abandoned task, from the end of the last worker that ran it.
    #[doc(hidden)]
    pub fn abandoned(function: &'static str, index: u64, deaths: u32, exit: Exit) -> Error {
        match exit.reason {
            ExitReason::TaskTimedOut(_) => Error::TaskTimedOut { function, index, deaths, exit },
            _ => Error::WorkerDied { function, index, deaths, exit },
        }
    }

    /// Makes an [`Error::System`] from the system's error, or from a text that describes it.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// let cause = std::io::Error::from_raw_os_error(13);
    /// let error = fiber::Error::system("opening the camera failed", cause);
    /// let fiber::Error::System { cause, .. } = error else { unreachable!() };
    /// assert!(cause.is::<std::io::Error>());
    /// ```
    pub fn system(
        what: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::System { what: what.into(), cause: Cause::from(cause.into()) }
    }

    /// Makes an [`Error::Decode`] for a value of a type.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// let cause = "seven".parse::<u32>().unwrap_err();
    /// let error = fiber::Error::decode("u32", cause);
    /// assert!(error.to_string().contains("invalid digit"));
    /// ```
    pub fn decode(
        type_name: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::Decode { type_name, cause: Cause::from(cause.into()) }
    }

    /// Returns the backtrace of the panic in [`Error::Task`], if `RUST_BACKTRACE` is set in the
    /// process that panicked. Children inherit the variable.
    ///
    /// The caller of a handler that panics does not wait for the backtrace: the actor's process
    /// prints it on its standard error.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// use fiber::{Error, Failure, FailureKind};
    ///
    /// let failure = Failure::new(FailureKind::Returned, "the file is empty");
    /// let error = Error::Task { function: "parse", index: 0, failure };
    /// assert!(error.backtrace().is_none()); // it did not panic
    /// ```
    pub fn backtrace(&self) -> Option<&str> {
        match self {
            Error::Task { failure, .. } => failure.backtrace(),
            _ => None,
        }
    }
}

impl From<ConfigProblem> for Error {
    fn from(problem: ConfigProblem) -> Error {
        Error::Config(problem)
    }
}
