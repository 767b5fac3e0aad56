//! The lock against other processes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use fiber_core::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::folder::Folder;

/// A lock that this process holds on a journal. The system frees it when the process ends, however
/// it ends.
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of a journal.
    pub(crate) fn take(folder: &Folder) -> Result<Lock> {
        let path = folder.path().join("lock");
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| folder.refusal("open", &path, error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(held(folder, file)),
            Err(error) => return Err(folder.refusal("lock", &path, error)),
        }
        let holder = format!(
            "{} {}\n",
            std::process::id(),
            rustix::system::uname().nodename().to_string_lossy()
        );
        let written = file.set_len(0).and_then(|()| file.write_all_at(holder.as_bytes(), 0));
        written.map_err(|error| folder.refusal("write", &path, error))?;
        Ok(Lock { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that another thread starts has a copy of the descriptor until it begins its
        // program, and with it the lock, unless that is given back.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Returns the error that names the process with the lock.
fn held(folder: &Folder, mut file: File) -> Error {
    let mut holder = String::new();
    let _ = file.read_to_string(&mut holder);
    let holder = match holder.trim().split_once(' ') {
        Some((pid, host)) => format!("process {pid} on host {host}"),
        None => "another process".to_owned(),
    };
    folder.error(format!(
        "{holder} records in it: one process at a time can. Wait until it ends, stop it, or use \
         another journal"
    ))
}
