//! Files of `/proc` as text.

use std::path::Path;
use std::{fs, io};

/// Reads a file in which names may be any bytes, such as those of processes and mounts in `/proc`.
/// Bytes that are no UTF-8 become U+FFFD.
///
/// # Errors
/// The file can't be read.
pub fn read_lossy(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Returns the state of a process, as a letter, and its parent.
pub fn process_state(pid: u32) -> Option<(char, u32)> {
    let text = read_lossy(format!("/proc/{pid}/stat")).ok()?;
    // `PID (NAME) STATE PARENT …`, where the name may have brackets.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Returns whether a process is stopped, by a signal or a debugger.
pub fn is_stopped(pid: u32) -> bool {
    process_state(pid).is_some_and(|(state, _)| matches!(state, 'T' | 't'))
}
