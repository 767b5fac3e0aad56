//! The file of this program.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io, str};

/// The file that this process executes, also if it was deleted or replaced since.
const EXECUTABLE: &str = "/proc/self/exe";

/// Returns the path by which this process reads its program and starts it again: `/proc/self/exe`,
/// or, behind a loader (`ld-linux-x86-64.so.2 ./program`), which the system executes in the
/// program's place, the path of the program.
pub fn executable() -> &'static Path {
    // The executable of the process.
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| behind_a_loader().unwrap_or_else(|| EXECUTABLE.into()))
}

/// Returns the path of the program's file. It ends with ` (deleted)` if the file was deleted.
///
/// # Errors
/// `/proc` can't be read.
pub fn executable_name() -> io::Result<PathBuf> {
    match executable() {
        path if path == Path::new(EXECUTABLE) => fs::read_link(path),
        path => Ok(path.into()),
    }
}

/// Returns the file of this code, if the process executes a shared object without it.
fn behind_a_loader() -> Option<PathBuf> {
    let executed = fs::read_link(EXECUTABLE).ok()?;
    let name = executed.file_name()?.as_bytes();
    if !name.windows(3).any(|part| part == b".so") {
        return None;
    }
    let maps = fs::read("/proc/self/maps").ok()?;
    let code = behind_a_loader as fn() -> Option<PathBuf> as usize;
    let line = maps.split(|byte| *byte == b'\n').find(|line| has(line, code))?;
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    let path = PathBuf::from(OsStr::from_bytes(path));
    (path != executed && path.is_file()).then_some(path)
}

/// Returns whether a line of `/proc/self/maps` is about a mapping that has this address.
fn has(line: &[u8], address: usize) -> bool {
    let range =
        line.split(|byte| *byte == b' ').next().and_then(|range| str::from_utf8(range).ok());
    let number = |text| usize::from_str_radix(text, 16).ok();
    let ends = range.and_then(|range| range.split_once('-'));
    let ends = ends.and_then(|(start, end)| number(start).zip(number(end)));
    ends.is_some_and(|(start, end)| (start..end).contains(&address))
}
