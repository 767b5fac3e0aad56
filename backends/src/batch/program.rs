//! The file of this program, which all hosts of an allocation have at the same path.

use std::ffi::OsString;

use crate::BackendError;

/// Returns the path of this program, for other nodes.
///
/// # Errors
/// The file was replaced or deleted.
pub(crate) fn program_path() -> Result<OsString, BackendError> {
    let path = std::fs::read_link("/proc/self/exe")
        .map_err(|error| format!("the path of this program is not known: {error}"))?;
    if path.exists() {
        return Ok(path.into());
    }
    Err(refused!(
        "the file of this program, `{}`, was replaced or deleted while it runs: other nodes can't \
         start it; start the program again",
        path.display()
    ))
}
