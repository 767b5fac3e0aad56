//! The processes below a worker: those that its present command has started.
//!
//! A worker runs one command at a time and has no other children, so all processes below it belong
//! to that command. Orphans become children of the worker, also those with a session of their own:
//! none gets lost.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::inspect::outside::parents;

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
    let mut found = vec![std::process::id()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    for pid in found.into_iter().skip(1) {
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
        match kill_process(process, signal) {
            // A program with other rights than this process can't be killed by it.
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
