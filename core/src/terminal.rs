//! The terminal of a session of processes.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Gives up this process's terminal, if it has one. It is for processes that run in the background
/// for good: reading the terminal would stop them until somebody notices, and is an error from now
/// on, for what they start too. Their standard streams stay as they are.
///
/// The leader of a session would take the terminal from all processes of it.
pub fn leave_terminal() {
    // Not rustix's functions: a session from outside of this PID namespace has the ID 0 here.
    // SAFETY: neither function has requirements.
    if unsafe { libc::getsid(0) == libc::getpid() } {
        return;
    }
    if let Ok(terminal) = File::open("/dev/tty") {
        // SAFETY: the request takes no argument.
        unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) };
    }
}
