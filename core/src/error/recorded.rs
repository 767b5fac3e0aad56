//! Values of journals that a program can't read any more.

use std::fmt;

use super::{Cause, Error};

/// The cause of an [`Error::Decode`] of a value from a journal.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The journal's folder, for messages.
    journal: String,
    cause: Cause,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recorded { journal, cause } = self;
        write!(
            f,
            "{cause}. Journal `{journal}` has it, perhaps from a build of this program whose types were \
             others: give the journal another `Journal::version` to begin anew, or let the types \
             read what they have recorded (`#[serde(default)]`, `#[serde(alias)]`)"
        )
    }
}

impl std::error::Error for Recorded {}

impl Error {
    /// Says that a value which can't be deserialized came from the journal in this folder, if it
    /// came from one.
    #[doc(hidden)]
    #[must_use]
    pub fn recorded(self, journal: Option<&str>) -> Error {
        match (self, journal) {
            (Error::Decode { type_name, cause }, Some(journal)) => {
                Error::decode(type_name, Recorded { journal: journal.into(), cause })
            }
            (other, _) => other,
        }
    }
}
