//! The lock against other processes.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fiber_core::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::folder::Folder;

/// The file that is locked.
pub(crate) const FILE: &str = "lock";

/// How often the lock is tried again, and how long after.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// A lock that this process holds on a journal. The system frees it when the process ends, however
/// it ends.
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of a journal.
    pub(crate) fn take(folder: &Folder) -> Result<Lock> {
        let path = folder.path().join(FILE);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| folder.refusal("open", &path, error))?;
        let mut attempts = 0;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                // A reader that looks for the holder has it for a moment.
                Err(Errno::WOULDBLOCK) if attempts < ATTEMPTS => {
                    attempts += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(Errno::WOULDBLOCK) => return Err(held(folder, file)),
                Err(error) => return Err(folder.refusal("lock", &path, error)),
            }
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

/// A process that has a journal open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its pid on its host, and the host's name.
    process: Option<(String, String)>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some((pid, host)) => write!(f, "process {pid} on host {host}"),
            None => f.write_str("another process"),
        }
    }
}

/// Returns the process that has the lock of a journal.
pub(crate) fn holder(folder: &Folder) -> Option<Holder> {
    let file = File::open(folder.path().join(FILE)).ok()?;
    // Readers don't exclude each other, and hold it for a moment only.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(named(file)),
        _ => None,
    }
}

fn named(mut file: File) -> Holder {
    let mut holder = String::new();
    let _ = file.read_to_string(&mut holder);
    let process = holder.trim().split_once(' ');
    Holder { process: process.map(|(pid, host)| (pid.to_owned(), host.to_owned())) }
}

/// Returns the error that names the process with the lock.
fn held(folder: &Folder, file: File) -> Error {
    folder.error(format!(
        "{} records in it: one process at a time can. Wait until it ends, stop it, or use another \
         journal",
        named(file)
    ))
}
