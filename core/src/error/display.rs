//! The messages and the sources of errors.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::Error;
use crate::exit::{Exit, ExitReason};
use crate::rounded::rounded;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotInitialised => f.write_str(
                "fiber is not initialised in this program: make `fiber::init();` the first line of \
                 `main`, or put `#[fiber::main]` on it (in tests: `fiber::test_harness!();` at the \
                 top of the file). Without it a worker process would run the program's `main` \
                 again instead of its tasks",
            ),
            Error::Config(problem) => write!(f, "wrong configuration: {problem}"),
            Error::Invalid { what, problem } => write!(f, "`{what}`: {problem}"),
            Error::Start { name, reason } => {
                write!(f, "`{name}` could not be started: {}", reason.start_problem())
            }
            Error::Exited { name, exit } => write!(f, "process `{name}` {exit}"),
            Error::Task { function, index, failure } => {
                write!(f, "task {index} (`{function}`) {failure}")
            }
            Error::WorkerDied { function, index, deaths, exit } => {
                write!(f, "task {index} (`{function}`) {}", Abandoned { deaths: *deaths, exit })
            }
            Error::Cancelled { function } => write!(f, "the call of `{function}` was cancelled"),
            Error::PoolEnded { pool, reason } => write!(f, "pool `{pool}` {reason}"),
            Error::TimeLimit { function, usual, left } => {
                write!(f, "no more tasks of `{function}` begin: ")?;
                if !usual.is_zero() {
                    write!(f, "they usually take {}, and ", rounded(*usual))?;
                }
                f.write_str("the time limit of the allocation leaves ")?;
                match *left {
                    Duration::ZERO => f.write_str("no time")?,
                    left => write!(f, "{}", rounded(left))?,
                }
                f.write_str(" for tasks (`Pool::durable` keeps the results for the next start)")
            }
            Error::TimedOut { what, limit } => write!(f, "{what} did not happen within {limit:?}"),
            Error::Encode { what, cause } => {
                write!(f, "a value of type `{what}` can't be serialised: {cause}")
            }
            Error::Decode { what, cause } => {
                write!(f, "a value of type `{what}` can't be deserialised: {cause} ")?;
                // Serde's words for a number that it can't keep until it knows the type.
                let is_buffered = ["u128 is not supported", "i128 is not supported"];
                if is_buffered.contains(&cause.to_string().as_str()) {
                    f.write_str(
                        "(serde keeps no numbers of 128 bits where it reads a value before it \
                         knows the type: in enums with `tag` or `untagged`, and in what is \
                         flattened. Give the enum a `content` too, or carry the number as a text \
                         or as two of 64 bits)",
                    )
                } else {
                    f.write_str("(do its `Serialize` and `Deserialize` match each other?)")
                }
            }
            Error::TooLarge { what, size, limit } => write!(
                f,
                "{what} takes {size} bytes, which is more than `max_message` allows ({limit}): \
                 send less at a time, or raise it"
            ),
            Error::UnknownEntry { offset, build } => write!(
                f,
                "no function is at offset {offset:#x} in build {build}: does the sender run \
                 another build?"
            ),
            Error::WouldDeadlock => f.write_str(
                "`.wait()` was called on fiber's own thread, which would then wait for itself for \
                 ever: use `.await` here, or call it from another thread",
            ),
            Error::ActorStopped { name, reason: ExitReason::Shutdown } => write!(
                f,
                "actor `{name}` was stopped: it was asked to stop, or the last handle of its \
                 manager was dropped"
            ),
            Error::ActorStopped { name, reason } => write!(f, "actor `{name}` {reason}"),
            Error::Call { actor, message, failure } => {
                write!(f, "actor `{actor}` {failure} (handling `{message}`)")
            }
            Error::MailboxFull { name, capacity } => write!(
                f,
                "the mailbox of actor `{name}` is full ({capacity} messages): send less at a time, \
                 or make it larger"
            ),
            Error::OwnerEnded { what, reason } => write!(
                f,
                "{what} is gone: its owner {reason} (it lives no longer than the process that made \
                 it)"
            ),
            Error::Closed { what, reason } => write!(f, "{what} {reason}"),
            Error::OtherSession { name } => write!(
                f,
                "the handle of `{name}` belongs to another session: handles work only in the \
                 processes of the program that made them, while it runs"
            ),
            Error::RankDied { ring, reason, rank, exit } => {
                write!(f, "ring `{ring}` {reason}: its rank {rank} {exit}")
            }
            Error::Ring { ring, problem } => write!(f, "ring `{ring}`: {problem}"),
            Error::Journal { journal, cause } => {
                write!(f, "journal `{}`: {cause}", journal.display())
            }
            Error::System { what, cause } => write!(f, "{what}: {cause}"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Task { failure, .. } | Error::Call { failure, .. } => Some(failure),
            Error::Exited { exit, .. } | Error::WorkerDied { exit, .. } => Some(&exit.reason),
            Error::RankDied { exit, .. } => Some(&exit.reason),
            Error::Start { reason, .. }
            | Error::ActorStopped { reason, .. }
            | Error::OwnerEnded { reason, .. } => Some(reason),
            Error::Config(problem) => Some(problem),
            Error::Ring { problem, .. } => Some(problem),
            Error::Encode { cause, .. }
            | Error::Decode { cause, .. }
            | Error::Journal { cause, .. }
            | Error::System { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}

/// The fate of a task whose workers died.
struct Abandoned<'a> {
    deaths: u32,
    exit: &'a Exit,
}

impl fmt::Display for Abandoned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Abandoned { deaths, exit } = self;
        match exit.reason {
            ExitReason::TaskTimedOut(_) if *deaths == 1 => {
                write!(f, "timed out: its worker {exit}")
            }
            _ => write!(
                f,
                "was abandoned: {deaths} of its workers died while they ran it; the last one {exit}"
            ),
        }
    }
}
