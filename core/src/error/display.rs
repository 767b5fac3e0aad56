//! The messages of errors.

use std::fmt;
use std::time::Duration;

use super::Error;
use super::recorded::Recorded;
use crate::exit::ExitReason;
use crate::rounded::rounded;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotInitialized => f.write_str(
                "fiber is not initialized in this program: make `fiber::init();` the first line of \
                 `main`, or put `#[fiber::main]` on it (in tests: `fiber::test_harness!();` at the \
                 top of the file). Without it a worker process would run the program's `main` \
                 again instead of its tasks",
            ),
            Error::Config(problem) => write!(f, "wrong configuration: {problem}"),
            Error::Invalid { method, problem } => write!(f, "`{method}`: {problem}"),
            Error::Start { name, reason } => {
                write!(f, "`{name}` could not be started: {}", reason.start_problem())
            }
            Error::Exited { name, exit } => write!(f, "process `{name}` {exit}"),
            Error::Task { function, index, failure } => {
                write!(f, "task {index} (`{function}`) {failure}")
            }
            Error::TaskTimedOut { function, index, deaths: 1, exit } => {
                write!(f, "task {index} (`{function}`) timed out: its worker {exit}")
            }
            Error::TaskTimedOut { function, index, deaths, exit }
            | Error::WorkerDied { function, index, deaths, exit } => write!(
                f,
                "task {index} (`{function}`) was abandoned: {deaths} of its workers died while \
                 they ran it; the last one {exit}"
            ),
            Error::InputFailed { function, index, cause } => {
                write!(
                    f,
                    "task {index} (`{function}`) did not run, because an input failed: {cause}"
                )
            }
            Error::OutputFailed { problem } => {
                write!(f, "an output of another process has no value: {problem}")
            }
            Error::StreamFailed { problem } => write!(f, "the stream failed: {problem}"),
            Error::Cancelled { function } => write!(f, "the call of `{function}` was cancelled"),
            Error::PoolEnded { name, reason } => write!(f, "pool `{name}` {reason}"),
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
            Error::Encode { type_name, cause } => {
                write!(f, "a value of type `{type_name}` can't be serialized: {cause}")
            }
            Error::Decode { type_name, cause } if cause.is::<Recorded>() => {
                write!(f, "a value of type `{type_name}` can't be deserialized: {cause}")
            }
            Error::Decode { type_name, cause } => {
                write!(f, "a value of type `{type_name}` can't be deserialized: {cause} ")?;
                // Serde's words for a number that it can't keep until it knows the type.
                let cause = cause.to_string();
                let is_buffered = ["u128 is not supported", "i128 is not supported"];
                let is_untagged = cause.contains("did not match any variant of untagged enum");
                if is_untagged {
                    f.write_str(
                        "(an untagged enum holds no numbers of 128 bits, as serde reads it before \
                         it knows the variant: carry them as a text or as two of 64 bits. Else its \
                         `Serialize` and `Deserialize` do not match each other)",
                    )
                } else if is_buffered.contains(&&*cause) {
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
                "`.wait()` was called on a thread that would then wait for itself for ever: fiber's \
                 own, or that of an actor that is to answer, start or end. Use `.await` here, or \
                 call it from another thread",
            ),
            Error::Forked => f.write_str(
                "this process is a fork of one that uses fiber, and has none of its threads: fork \
                 before the first pool, actor or queue, or start a program \
                 (`std::process::Command`) or a function (`fiber::Process`) in place of a fork",
            ),
            Error::ActorStopped { name, reason: reason @ ExitReason::Dropped } => {
                write!(f, "actor `{name}` {reason}: keep one as long as the actor is needed")
            }
            Error::ActorStopped { name, reason } => write!(f, "actor `{name}` {reason}"),
            Error::Call { name, message, failure } => {
                write!(f, "actor `{name}` {failure} (handling `{message}`)")
            }
            Error::Member { index, name, cause } => match &**cause {
                // These have the name.
                Error::Call { .. } | Error::ActorStopped { .. } | Error::MailboxFull { .. } => {
                    write!(f, "member {index}: {cause}")
                }
                _ => write!(f, "member {index} (`{name}`): {cause}"),
            },
            Error::MailboxFull { name, capacity } => write!(
                f,
                "the mailbox of actor `{name}` is full ({capacity} messages): send less at a time, \
                 or make it larger"
            ),
            Error::NoSuchName { name } => write!(
                f,
                "no actor has the name `{name}`: `RemoteAddr::register` gives one a name, and \
                 `fiber::wait_for` waits for that"
            ),
            Error::NameTaken { name, holder, process } => {
                write!(f, "the name `{name}` is taken: a `{holder}` of process {process} has it")
            }
            Error::OtherType { what, found, asked } => {
                write!(f, "{what} is of type `{found}`, not `{asked}`")
            }
            Error::TooSlow { topic, waiting } => write!(
                f,
                "a subscription to {topic} has ended, because it was too slow: {waiting} messages \
                 wait in its full buffer (take them faster, make the buffer larger \
                 with `Topic::buffer`, or subscribe with `Slow::Wait` or `Slow::KeepNewest`)"
            ),
            Error::NoMembers { group } => write!(f, "group `{group}` has no members"),
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
            Error::RankDied { name, reason, rank, exit } => {
                write!(f, "ring `{name}` {reason}: its rank {rank} {exit}")
            }
            Error::Ring { name, problem } => write!(f, "ring `{name}`: {problem}"),
            Error::Journal { journal, cause } => {
                write!(f, "journal `{}`: {cause}", journal.display())
            }
            Error::System { what, cause } => write!(f, "{what}: {cause}"),
        }
    }
}

/// The message has all causes, so there is no source.
impl std::error::Error for Error {}
