//! A process of this host, which another one has started.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Returns whether there is a process of this pid.
pub(super) fn exists(pid: u32) -> bool {
    matches!(open(pid), Ok(Some(_)))
}

/// Waits for its end.
pub(super) fn wait(pid: u32) -> Result<(), Errno> {
    match open(pid)? {
        None => Ok(()),
        Some(process) => ended(&process, None).map(drop),
    }
}

/// Asks a process to end, and kills it after `grace` seconds. Returns when it has ended.
pub(super) fn end(pid: u32, grace: u32) -> Result<(), Errno> {
    let Some(process) = open(pid)? else { return Ok(()) };
    let send = |signal| match pidfd_send_signal(&process, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => sent,
    };
    if grace > 0 {
        send(Signal::TERM)?;
        if ended(&process, Some(Duration::from_secs(grace.into())))? {
            return Ok(());
        }
    }
    send(Signal::KILL)?;
    ended(&process, None).map(drop)
}

/// Returns a handle of the process, if it exists.
fn open(pid: u32) -> Result<Option<OwnedFd>, Errno> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Waits for the end of a process, and returns whether it has come within `limit`.
fn ended(process: &OwnedFd, limit: Option<Duration>) -> Result<bool, Errno> {
    let deadline = limit.map(fiber_core::deadline_after);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref()) {
            // A signal of this process: it goes on waiting.
            Err(Errno::INTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a process that ignores a signal.
    fn deaf(signal: &str) -> Child {
        let mut child = Command::new("bash")
            .args(["-c", &format!("trap '' {signal}; echo; read")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        child
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed_after_the_grace_period() {
        let mut stubborn = deaf("TERM");
        end(stubborn.id(), 1).unwrap();
        assert_eq!(stubborn.wait().unwrap().signal(), Some(9));
        let mut polite = deaf("USR1");
        end(polite.id(), 60).unwrap();
        assert_eq!(polite.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = deaf("USR1");
        let pid = child.id();
        assert!(exists(pid));
        let waiting = std::thread::spawn(move || wait(pid));
        child.kill().unwrap();
        waiting.join().unwrap().unwrap();
        child.wait().unwrap();
        assert!(!exists(pid));
        wait(pid).unwrap();
    }
}
