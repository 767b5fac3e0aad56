//! The file of a program, which all hosts of an allocation have at the same path.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::BackendError;
use crate::cluster::session::{ProgramSource, RunRequest};

/// Returns the path of this program, for other nodes.
///
/// # Errors
/// The file was replaced or deleted.
pub fn program_path() -> Result<OsString, BackendError> {
    let path = fiber_core::executable_name()
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

/// Returns the path of the program of a session on this machine.
///
/// # Errors
/// It is an image.
pub fn program_of(run: &RunRequest) -> Result<PathBuf, BackendError> {
    let ProgramSource::Executable(path) = &run.source else {
        return Err(
            "batch systems start programs, not images: give the program: `fiber run CMD`".into()
        );
    };
    std::path::absolute(path)
        .map_err(|error| refused!("the path {} can't be used: {error}", path.display()))
}
