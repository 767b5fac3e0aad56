//! Finds the program of a command line, as a shell does.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fiber_core::nearest;

use crate::ExitError;

/// The exit codes of shells if there is no such program, and if it can't be executed.
pub(crate) const NOT_FOUND: u8 = 127;
pub(crate) const NOT_EXECUTABLE: u8 = 126;

/// Returns the file that `command` names: a path, or a name in PATH.
pub(crate) fn find(command: impl AsRef<OsStr>) -> Result<PathBuf, ExitError> {
    let command = command.as_ref();
    if command.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return check(&path).map(|()| path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = env::split_paths(&path).map(|directory| directory.join(command));
    let found: Vec<PathBuf> = candidates.filter(|candidate| candidate.is_file()).collect();
    if let Some(executable) = found.iter().find(|file| check(file).is_ok()) {
        return Ok(executable.clone());
    }
    if let Some(file) = found.first() {
        check(file)?;
    }
    let shown = command.display();
    let remedy = match Path::new(command).is_file() {
        true => format!(": did you mean `./{shown}`?"),
        false => ": give its path, or name an image that has it".to_string(),
    };
    Err(ExitError {
        code: NOT_FOUND,
        problem: format!("there is no program `{shown}` in PATH{remedy}"),
    })
}

fn check(path: &Path) -> Result<(), ExitError> {
    let shown = path.display();
    let (code, problem) = match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            (NOT_EXECUTABLE, format!("`{shown}` is a directory: name the program in it"))
        }
        Ok(found) if found.permissions().mode() & 0o111 == 0 => (
            NOT_EXECUTABLE,
            format!("`{shown}` is not executable: run `chmod +x {shown}` if it is a program"),
        ),
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let remedy = neighbour(path)
                .map_or("build it first, or correct the path".into(), |neighbour| {
                    format!("did you mean `{}`?", neighbour.display())
                });
            (NOT_FOUND, format!("there is no program `{shown}`: {remedy}"))
        }
        Err(error) => (NOT_EXECUTABLE, format!("the program `{shown}` can't be read: {error}")),
    };
    Err(ExitError { code, problem })
}

/// Returns an executable with a similar name in the directory of a path that does not exist.
fn neighbour(path: &Path) -> Option<PathBuf> {
    let names: Vec<String> = fs::read_dir(path.parent()?)
        .ok()?
        .flatten()
        .filter(|entry| check(&entry.path()).is_ok())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let name = nearest(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(path.with_file_name(name))
}
