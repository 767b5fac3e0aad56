//! Messages between the command and its workers.

use std::fmt;
use std::time::Duration;

use fiber::error::{Failure, FailureKind};
use fiber_core::SignalName;
use serde::{Deserialize, Serialize};

/// How workers run commands. It is not part of a task, so that it can change between two runs with
/// one journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    /// The path of the program, if it is the same for all items and was found on the machine of the
    /// head.
    pub(super) program: Option<Vec<u8>>,
    pub(super) timeout: Option<Duration>,
    pub(super) retries: u32,
    /// The size limit of a command's output, in bytes.
    pub(super) max_output: u64,
}

/// How a command has ended, with its output. A journal records it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The words of the command, which tell whose outcome this is.
    pub(super) command: Vec<Vec<u8>>,
    pub(super) end: End,
    /// The time of the last attempt.
    pub(super) duration: Duration,
    /// The name of the machine.
    pub(super) host: String,
    pub(super) attempts: u32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// How a command has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum End {
    Exited(i32),
    Signaled(i32),
    TimedOut(Duration),
    /// It printed more than the limit in bytes.
    PrintedTooMuch(u64),
    /// There is no such program, or it can't be executed: no attempt would end in another way.
    NotExecutable {
        exit_code: u8,
        problem: String,
    },
    /// The operating system could not start it.
    NotStarted(String),
}

impl End {
    pub(super) fn is_success(&self) -> bool {
        *self == End::Exited(0)
    }

    /// Returns the exit code that a shell reports for this end.
    pub(super) fn shell_code(&self) -> i32 {
        match self {
            End::Exited(code) => *code,
            End::Signaled(signal) => 128 + signal,
            End::TimedOut(_) => 124,
            End::PrintedTooMuch(_) => 128 + 25,
            End::NotExecutable { exit_code, .. } => i32::from(*exit_code),
            End::NotStarted(_) => 126,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit code {code}"),
            End::Signaled(signal) => {
                write!(f, "killed by signal {signal}{}", SignalName(*signal))
            }
            End::TimedOut(limit) => {
                write!(f, "killed after its timeout of {}", humantime::format_duration(*limit))
            }
            End::PrintedTooMuch(limit) => write!(
                f,
                "killed because it printed more than {}: raise `--max-output`, or let it write to \
                 a file",
                bytesize::ByteSize(*limit)
            ),
            End::NotExecutable { problem, .. } | End::NotStarted(problem) => f.write_str(problem),
        }
    }
}

impl Outcome {
    /// Returns the failure of a task: a line for readers, and the outcome. A pool knows a task as
    /// failed by its `Err`, of which only the text travels.
    pub(super) fn to_failure(&self) -> Failure {
        let encoded = fiber_values::codec::encode(self).expect("an outcome has no special values");
        let mut failure = Failure::new(FailureKind::Returned, format_args!("{}\n", self.end));
        // Each byte is the character of its number: a text can't have bytes as they are.
        failure.message.extend(encoded.iter().map(|byte| char::from(*byte)));
        failure
    }

    /// Returns the outcome in the text of a failed task.
    pub(super) fn of_failure(text: &str) -> Option<Outcome> {
        let (_, encoded) = text.split_once('\n')?;
        let bytes: Option<Vec<u8>> = encoded.chars().map(|c| u8::try_from(c).ok()).collect();
        fiber_values::codec::decode(&bytes?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_line_and_the_outcome() {
        let outcome = Outcome {
            command: vec![b"p".to_vec(), b"\xff\n".to_vec()],
            end: End::Exited(3),
            duration: Duration::from_millis(1500),
            host: "a".into(),
            attempts: 2,
            stdout: (0..=255).collect(),
            stderr: b"line\nline\n".to_vec(),
        };
        let text = outcome.to_failure().message;
        assert!(text.starts_with("exit code 3\n"), "{text}");
        assert_eq!(Outcome::of_failure(&text), Some(outcome));
        assert_eq!(Outcome::of_failure("it panicked"), None);
    }
}
