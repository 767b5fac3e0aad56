//! The errors of backends, before they become fiber's [`Error`](fiber_core::Error).

use std::fmt::{self, Display};

use fiber_core::shortage;

/// A failure of a backend. Each variant carries a message that names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendError {
    /// The engine can't be used from here: its commands, rights or settings are missing.
    NotAvailable(String),
    /// The engine does not answer, or is busy. The same request may succeed later.
    OutOfReach(String),
    /// Something did not happen within its time limit. The same request may succeed later.
    TimedOut(String),
    /// This host is short of descriptors, threads or memory. The same request may succeed later.
    Shortage(String),
    /// The request or the configuration can't be granted. The same request fails again.
    Refused(String),
}

impl Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::NotAvailable(message)
            | BackendError::OutOfReach(message)
            | BackendError::TimedOut(message)
            | BackendError::Shortage(message)
            | BackendError::Refused(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for BackendError {}

impl BackendError {
    /// Returns whether the same request may succeed later, without a change by the user.
    pub fn is_passing(&self) -> bool {
        match self {
            BackendError::OutOfReach(_) | BackendError::TimedOut(_) | BackendError::Shortage(_) => {
                true
            }
            BackendError::NotAvailable(_) | BackendError::Refused(_) => false,
        }
    }

    /// Returns whether the same request fails until somebody changes something.
    pub fn is_lasting(&self) -> bool {
        !self.is_passing()
    }

    /// Makes an error of the system's, which is a shortage or a refusal.
    pub fn of_system(error: &std::io::Error, message: String) -> BackendError {
        match shortage::is_shortage(error) {
            true => BackendError::Shortage(message),
            false => BackendError::Refused(message),
        }
    }

    /// Makes the error of a file or folder that can't be read.
    pub fn unreadable(path: impl Display, error: &std::io::Error) -> BackendError {
        let message = format!("{path} can't be read: {}", shortage::explain(error));
        BackendError::of_system(error, message)
    }

    /// Makes the error of a command that can't be run, with this message if it does not exist.
    pub fn of_command(command: &str, error: &std::io::Error, missing: &str) -> BackendError {
        if error.kind() == std::io::ErrorKind::NotFound {
            return BackendError::NotAvailable(missing.into());
        }
        let problem = shortage::explain(error);
        BackendError::of_system(error, format!("the command `{command}` can't be run: {problem}"))
    }

    /// Returns the error with its message changed.
    #[cfg(any(test, feature = "docker"))]
    pub(crate) fn map(self, change: impl FnOnce(String) -> String) -> BackendError {
        match self {
            BackendError::NotAvailable(message) => BackendError::NotAvailable(change(message)),
            BackendError::OutOfReach(message) => BackendError::OutOfReach(change(message)),
            BackendError::TimedOut(message) => BackendError::TimedOut(change(message)),
            BackendError::Shortage(message) => BackendError::Shortage(change(message)),
            BackendError::Refused(message) => BackendError::Refused(change(message)),
        }
    }
}

/// Makes fiber's error of a backend's: `what` has failed because of it.
#[cfg(any(feature = "batch", feature = "docker", feature = "ssh"))]
pub(crate) fn system_error(
    what: impl Into<String>,
) -> impl FnOnce(BackendError) -> fiber_core::Error {
    let what = what.into();
    move |problem| fiber_core::Error::system(what, problem)
}

/// Formats the message of a [`BackendError::Refused`].
macro_rules! refused {
    ($($message:tt)*) => {
        $crate::BackendError::Refused(format!($($message)*))
    };
}

/// Most problems are refusals: the message says what to change.
impl From<String> for BackendError {
    fn from(message: String) -> BackendError {
        BackendError::Refused(message)
    }
}

impl From<&str> for BackendError {
    fn from(message: &str) -> BackendError {
        BackendError::Refused(message.into())
    }
}

impl From<BackendError> for String {
    fn from(error: BackendError) -> String {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn errors_pass_or_last() {
        let message = || "the reason".to_string();
        for passing in [
            BackendError::OutOfReach(message()),
            BackendError::TimedOut(message()),
            BackendError::of_system(&io::Error::from_raw_os_error(24), message()),
        ] {
            assert!(passing.is_passing() && !passing.is_lasting(), "{passing:?}");
        }
        for lasting in [
            BackendError::NotAvailable(message()),
            BackendError::from(message()),
            BackendError::of_system(&io::ErrorKind::NotFound.into(), message()),
        ] {
            assert!(lasting.is_lasting() && !lasting.is_passing(), "{lasting:?}");
        }
    }

    #[test]
    fn a_changed_message_keeps_its_kind() {
        let error = BackendError::TimedOut("late".into()).map(|message| message + ": wait");
        assert_eq!(error, BackendError::TimedOut("late: wait".into()));
    }
}
