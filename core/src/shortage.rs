//! What the system is short of when it refuses something, and what to do about it.

use std::io;

use rustix::io::Errno;

/// Returns whether the system refused something only because it is short of something: it may
/// succeed later.
pub fn is_shortage(error: &io::Error) -> bool {
    remedy(error).is_some() || error.kind() == io::ErrorKind::OutOfMemory
}

/// Returns the system's words, with what to do if it is short of something.
pub fn explain(error: &io::Error) -> String {
    match remedy(error) {
        Some(remedy) => format!("{error}: {remedy}"),
        None => error.to_string(),
    }
}

fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::MFILE => {
            "this process may open no more files; raise the limit (`ulimit -n`), or use fewer workers"
        }
        Errno::NFILE => {
            "this host may open no more files; raise the limit (`sysctl fs.file-max`), or use fewer workers"
        }
        Errno::AGAIN => {
            "no more processes and threads may be started; raise the limits (`ulimit -u`, that of the control group, and \
             `ulimit -v`, for a thread's stack takes address space), or use fewer workers"
        }
        Errno::NOMEM => {
            "there is not enough memory; raise the limit (`ulimit -v`) if there is one, or use fewer workers"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_comes_with_a_remedy_and_nothing_else_does() {
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
