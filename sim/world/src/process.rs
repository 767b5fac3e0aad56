//! Properties that must be the same in each process, so that a seed always has the same history.
//!
//! - The addresses of its memory: locks of parking_lot let waiters in by a table whose rows are
//!   chosen by the locks' addresses.
//! - The number of its cores, by which fiber decides whether threads spin, and dashmap how many
//!   parts a map has. One core is also twice as fast: one thread at a time runs.

// It makes a system call that has no safe form.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The value that asks for the current one.
const ASK: libc::c_ulong = 0xffff_ffff;

/// Starts this program again in place of this process, with fixed addresses, unless it has them.
///
/// # Errors
/// The system's error if it does not allow that, as some containers don't.
pub fn fix_addresses() -> io::Result<()> {
    // SAFETY: the call has no conditions.
    let current = unsafe { libc::personality(ASK) };
    if current < 0 {
        return Err(io::Error::last_os_error());
    }
    if current & libc::ADDR_NO_RANDOMIZE != 0 {
        return Ok(());
    }
    // SAFETY: as above.
    let changed =
        unsafe { libc::personality((current | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) };
    if changed < 0 {
        return Err(io::Error::last_os_error());
    }
    Err(Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).exec())
}

/// Gives fixed addresses to the processes that this thread starts from now on.
///
/// # Errors
/// The system's error if it does not allow that, as some containers don't.
pub(crate) fn fix_addresses_of_children() -> io::Result<()> {
    // SAFETY: the call has no conditions.
    let current = unsafe { libc::personality(ASK) };
    // SAFETY: as above.
    match unsafe { libc::personality((current | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets this thread, and what it starts, run on one of its cores alone, by its number among them.
///
/// # Errors
/// The system's error.
pub fn use_core(number: usize) -> io::Result<()> {
    let all = sched_getaffinity(None)?;
    let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    let mut chosen = CpuSet::new();
    chosen.set(cores[number % cores.len()]);
    Ok(sched_setaffinity(None, &chosen)?)
}
