//! Problems with a journal, in words.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fiber_core::{Error, shortage};
use rustix::io::Errno;

/// The cause of an [`Error::Journal`].
#[derive(Debug)]
pub(crate) struct Problem(String);

impl Problem {
    /// Something that the system refused: `what` is `write`, `open` and so on.
    pub(crate) fn system(what: &str, path: &Path, error: impl Into<io::Error>) -> Problem {
        let error = error.into();
        let (shown, advice) = (shortage::explain(&error), advice(&error));
        Problem(format!("can't {what} `{}`: {shown}{advice}", path.display()))
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
        Some(Errno::FBIG) => {
            ". It is at the limit of file sizes: raise it (`ulimit -f`), and start the program \
             again: it goes on from what is recorded"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_reached_is_named() {
        for (errno, remedy) in [
            (Errno::FBIG, "`ulimit -f`"),
            (Errno::MFILE, "`ulimit -n`"),
            (Errno::AGAIN, "`ulimit -u`"),
            (Errno::NOSPC, "Free space"),
        ] {
            let problem = Problem::system("write", Path::new("/j"), errno).to_string();
            assert!(problem.starts_with("can't write `/j`: "), "{problem}");
            assert!(problem.contains(remedy), "{problem}");
        }
    }
}
