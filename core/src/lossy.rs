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
