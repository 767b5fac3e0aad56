//! Failures of the commands of a batch system, with remedies.

use std::fmt;
use std::io;
use std::time::Duration;

use fiber_core::shortage;

use crate::BackendError;

/// The words of messages about the commands of one batch system, and the way to read its own.
#[derive(Debug)]
pub struct Hints {
    /// Where commands are missing, and the remedy: `in PATH: load its module`.
    pub missing: &'static str,
    /// The remedy if a command does not answer.
    pub silent: &'static str,
    /// Returns the part of a line of standard error that says something.
    pub trim: fn(&str) -> &str,
    /// Returns whether the same request may succeed later, from the words of a failure.
    pub is_passing: fn(&str) -> bool,
    /// Returns the remedy, from the words of a failure.
    pub remedy: fn(&str) -> Option<&'static str>,
}

/// Why a command did not do its work.
#[derive(Debug)]
pub enum CommandError {
    /// It can't be run.
    NotRun {
        /// The command.
        program: &'static str,
        /// The system's error.
        error: io::Error,
        /// The words of messages about it.
        hints: &'static Hints,
    },
    /// It did not end in time.
    TimedOut {
        /// The command.
        program: &'static str,
        /// The time limit.
        limit: Duration,
        /// The words of messages about it.
        hints: &'static Hints,
    },
    /// It failed, with this on standard error.
    Failed {
        /// The command.
        program: &'static str,
        /// Its words on standard error, as one line.
        words: String,
        /// The words of messages about it.
        hints: &'static Hints,
    },
}

impl CommandError {
    /// Returns the failure of a command that printed `errors`, and nothing useful without any.
    pub fn failed(
        program: &'static str,
        hints: &'static Hints,
        errors: &str,
        otherwise: impl fmt::Display,
    ) -> CommandError {
        let words = words_of(errors, program, hints.trim);
        let words = if words.is_empty() { otherwise.to_string() } else { words };
        CommandError::Failed { program, words, hints }
    }

    /// Returns whether the batch system may answer the same request later: it is busy, restarted or
    /// out of reach.
    pub fn is_passing(&self) -> bool {
        match self {
            CommandError::NotRun { .. } => false,
            CommandError::TimedOut { .. } => true,
            CommandError::Failed { words, hints, .. } => (hints.is_passing)(words),
        }
    }

    /// Returns whether a command has failed with one of these words.
    pub fn says(&self, signs: &[&str]) -> bool {
        matches!(self, CommandError::Failed { words, .. }
            if signs.iter().any(|sign| words.contains(sign)))
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::NotRun { program, error, hints }
                if error.kind() == io::ErrorKind::NotFound =>
            {
                write!(f, "there is no command `{program}` {}", hints.missing)
            }
            CommandError::NotRun { program, error, .. } => {
                let problem = shortage::explain(error);
                write!(f, "the command `{program}` can't be run: {problem}")
            }
            CommandError::TimedOut { program, limit, hints } => {
                write!(f, "`{program}` has not answered within {limit:?}: {}", hints.silent)
            }
            CommandError::Failed { program, words, hints } => {
                write!(f, "`{program}` failed: {words}")?;
                (hints.remedy)(words).map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
            }
        }
    }
}

impl From<CommandError> for BackendError {
    fn from(error: CommandError) -> BackendError {
        let message = error.to_string();
        match error {
            CommandError::TimedOut { .. } => BackendError::TimedOut(message),
            CommandError::Failed { .. } if error.is_passing() => BackendError::OutOfReach(message),
            CommandError::Failed { .. } => BackendError::Refused(message),
            CommandError::NotRun { error, .. } if shortage::is_shortage(&error) => {
                BackendError::Shortage(message)
            }
            CommandError::NotRun { .. } => BackendError::NotAvailable(message),
        }
    }
}

/// Returns the messages of a command as one line, without its own name.
fn words_of(text: &str, program: &str, trim: fn(&str) -> &str) -> String {
    let own = format!("{program}: ");
    let lines = text.lines().map(|line| trim(line.strip_prefix(&own).unwrap_or(line)).trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
