//! Signals to processes, and whether these are there.

use rustix::process::{Signal, kill_process, test_kill_process};

use crate::program::pid;
use crate::wait::hang;

/// Sends a signal to a process that is there.
#[track_caller]
pub fn send(signal: Signal, process: u32) {
    kill_process(pid(process), signal).expect("it is there");
}

/// Kills a process that is there.
#[track_caller]
pub fn kill(process: u32) {
    send(Signal::KILL, process);
}

/// Kills this process, as a crash does.
pub fn die() -> ! {
    kill(std::process::id());
    hang()
}

/// Returns whether a process runs. A zombie does not.
pub fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| !["Z", "X"].contains(&state))
}

/// Returns whether a process is there, also as a zombie that nobody has reaped.
pub fn exists(process: u32) -> bool {
    test_kill_process(pid(process)).is_ok()
}
