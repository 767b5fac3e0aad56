//! Values of journals that a program can't read any more.

use std::fmt;
use std::path::Path;

use super::{Cause, Error};

/// The cause of an [`Error::Decode`] of a value from a journal.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The journal, for messages.
    journal: String,
    cause: Cause,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recorded { journal, cause } = self;
        write!(
            f,
            "{cause}. {journal} has it, perhaps from a build of this program whose types were \
             others: give the journal another `Journal::version` to begin anew, or let the types \
             read what they have recorded (`#[serde(default)]`, `#[serde(alias)]`)"
        )
    }
}

impl std::error::Error for Recorded {}

impl Error {
    /// Says that a value which can't be deserialized came from a journal, which the message calls
    /// by this name.
    #[doc(hidden)]
    #[must_use]
    pub fn recorded(self, journal: impl Into<String>) -> Error {
        match self {
            Error::Decode { type_name, cause } => {
                Error::decode(type_name, Recorded { journal: journal.into(), cause })
            }
            other => other,
        }
    }

    /// As [`recorded`](Error::recorded), if the value came from a journal, by its folder.
    #[doc(hidden)]
    #[must_use]
    pub fn recorded_at(self, journal: Option<&Path>) -> Error {
        match journal {
            Some(journal) => self.recorded(format!("journal `{}`", journal.display())),
            None => self,
        }
    }
}
