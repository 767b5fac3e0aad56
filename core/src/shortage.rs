//! Resources that ran out when the system refused something, and the remedies.

use std::{fmt, io};

use rustix::io::Errno;

/// Returns whether the system refused something only because a resource ran out, so that it may
/// succeed later.
pub fn is_shortage(error: &io::Error) -> bool {
    remedy(error).is_some() || error.kind() == io::ErrorKind::OutOfMemory
}

/// Returns the system's message, followed by a remedy if a resource ran out.
pub fn explain(error: &io::Error) -> String {
    match remedy(error) {
        Some(remedy) => format!("{error}: {remedy}"),
        None => error.to_string(),
    }
}

/// An error of the system that displays as [`explain`] words it. Its source is the error itself.
#[derive(Debug)]
pub struct Explained(pub io::Error);

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&explain(&self.0))
    }
}

impl std::error::Error for Explained {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::MFILE => {
            "this process has too many open files; raise the limit (`ulimit -n`), or use fewer \
             workers"
        }
        Errno::NFILE => {
            "this host has too many open files; raise the limit (`sysctl fs.file-max`), or use \
             fewer workers"
        }
        Errno::AGAIN => {
            "the limit of processes and threads is reached; raise the limits (`ulimit -u`, that of \
             the control group, and `ulimit -v`, for a thread's stack takes address space), or use \
             fewer workers"
        }
        Errno::NOMEM => {
            "there is not enough memory; raise the limit (`ulimit -v`) if there is one, or use \
             fewer workers"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_a_remedy_if_and_only_if_a_resource_ran_out() {
        for (errno, remedy) in
            [(Errno::MFILE, "ulimit -n"), (Errno::AGAIN, "ulimit -u"), (Errno::NOMEM, "ulimit -v")]
        {
            let error = io::Error::from(errno);
            assert!(is_shortage(&error) && explain(&error).contains(remedy), "{}", explain(&error));
        }
        let other = io::Error::from(Errno::NOENT);
        assert!(!is_shortage(&other) && explain(&other) == other.to_string());
    }
}
