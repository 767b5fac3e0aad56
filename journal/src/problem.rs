//! Problems with a journal, in words.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fiber_core::Error;
use rustix::io::Errno;

/// The cause of an [`Error::Journal`].
#[derive(Debug)]
pub(crate) struct Problem(String);

impl Problem {
    /// Something that the system refused: `what` is `write`, `open` and so on.
    pub(crate) fn system(what: &str, path: &Path, error: impl Into<io::Error>) -> Problem {
        let error = error.into();
        Problem(format!("can't {what} `{}`: {error}{}", path.display(), advice(&error)))
    }

    /// Something that is wrong with the journal itself.
    pub(crate) fn new(words: impl Into<String>) -> Problem {
        Problem(words.into())
    }

    /// Makes the error of the journal in this folder.
    pub(crate) fn of(self, folder: &Path) -> Error {
        Error::Journal { journal: folder.to_owned(), cause: Arc::new(self) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

/// Returns what a user can do about an error.
fn advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            ". Free space, or move the journal, and start the program again: it goes on from what \
             is recorded"
        }
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
            ". A program that records needs permission to write here: change it, or choose another \
             folder (`Journal::at`, or `journals` in the configuration)"
        }
        Some(Errno::NOTDIR | Errno::EXIST) => {
            ". A journal is a folder: choose another path, or move the file away"
        }
        Some(Errno::IO | Errno::STALE | Errno::NODEV | Errno::NXIO) => {
            ". The disk is broken or gone: check it, and start the program again: it goes on from \
             what is recorded"
        }
        Some(Errno::NOLCK | Errno::OPNOTSUPP) => {
            ". A journal needs a file system with locks: mount it with locks, or choose another \
             folder"
        }
        _ => "",
    }
}
