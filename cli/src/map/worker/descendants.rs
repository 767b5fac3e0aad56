//! The processes below a worker: those that its present command has started.
//!
//! A worker runs one command at a time and has no other children, so all processes below it belong
//! to that command. Orphans become children of the worker, also those with a session of their own:
//! none gets lost.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Makes this process the new parent of orphans below it.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Reaps the children that have ended. Returns whether others are left.
pub(super) fn reap() -> io::Result<bool> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(true),
            Err(Errno::CHILD) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends a signal to all processes below this one.
pub(super) fn signal_all(signal: Signal) -> io::Result<()> {
    let parents = parents()?;
    let mut found = vec![getpid()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, its)| *its == parent.as_raw_nonzero().get());
        found.extend(children.filter_map(|(pid, _)| Pid::from_raw(*pid)));
        next += 1;
    }
    for process in found.into_iter().skip(1) {
        match kill_process(process, signal) {
            // A program with other rights than this process can't be killed by it.
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns all processes with their parents.
fn parents() -> io::Result<Vec<(i32, i32)>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        parents.extend(parent_in(&String::from_utf8_lossy(&stat)).map(|parent| (pid, parent)));
    }
    Ok(parents)
}

/// Returns the parent in the text of `/proc/PID/stat`. The program's name before it may have any
/// characters.
fn parent_in(stat: &str) -> Option<i32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parent_in;

    #[test]
    fn names_of_programs_do_not_confuse() {
        assert_eq!(parent_in("12 (a) S 7 (b)) R 34 12 12"), Some(34));
        assert_eq!(parent_in("12 (sleep) S 7 12 12"), Some(7));
        assert_eq!(parent_in(""), None);
    }
}
