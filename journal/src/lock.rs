//! The lock against other processes.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use fiber_core::{Error, Result, host_name};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::folder::Folder;

/// The file that is locked.
pub(crate) const FILE: &str = "lock";

/// How long to wait for a reader, which has the lock for a moment while it looks for the holder.
const READER: Duration = Duration::from_millis(100);
/// How long to wait for a holder on another host. A cluster starts a lost or evicted program again
/// while the old one still ends, and learns late that a host is lost.
const OTHER_HOST: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// A lock that this process holds on a journal. The system frees it when the process ends, however
/// it ends.
pub(crate) struct Lock {
    /// `None` for a journal that can't be written and has no lock.
    file: Option<File>,
    /// Why the journal can't be written.
    refusal: Option<io::Error>,
}

impl Lock {
    /// Takes the lock of a journal. One that is in a folder in which this process can't write is
    /// shared with others that read it.
    pub(crate) fn take(folder: &Folder) -> Result<Lock> {
        let path = folder.path().join(FILE);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = match file {
            Err(error) if forbids_writing(&error) && folder.has_segments() => {
                return Lock::share(folder, error);
            }
            file => file.map_err(|error| folder.refusal("open", &path, error))?,
        };
        let began = Instant::now();
        let mut has_warned = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if began.elapsed() < READER => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let holder = named(&file);
                    if !holder.is_elsewhere() || began.elapsed() >= OTHER_HOST {
                        return Err(held(folder, &holder));
                    }
                    if !std::mem::replace(&mut has_warned, true) {
                        let journal = folder.path().display();
                        tracing::warn!(
                            "journal `{journal}`: {holder} records in it: waiting up to \
                             {OTHER_HOST:?} for its end"
                        );
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(folder.refusal("lock", &path, error)),
            }
        }
        let holder = format!("{} {}\n", std::process::id(), host_name());
        let written = file.set_len(0).and_then(|()| file.write_all_at(holder.as_bytes(), 0));
        written.map_err(|error| folder.refusal("write", &path, error))?;
        Ok(Lock { file: Some(file), refusal: None })
    }

    fn share(folder: &Folder, refusal: io::Error) -> Result<Lock> {
        // A copy may lack the file, or its owner alone may read it.
        let file = File::open(folder.path().join(FILE)).ok();
        if let Some(file) = &file
            && let Err(Errno::WOULDBLOCK) = flock(file, FlockOperation::NonBlockingLockShared)
        {
            return Err(held(folder, &named(file)));
        }
        Ok(Lock { file, refusal: Some(refusal) })
    }

    /// Returns the error for what is to be recorded in a journal that can't be written.
    pub(crate) fn refusal(&self, folder: &Folder) -> Option<Error> {
        let refusal = self.refusal.as_ref()?;
        Some(folder.error(format!(
            "it can't be written ({refusal}): it gives what is recorded in it, and this is not. \
             Make the folder writable, or copy the journal to one that is"
        )))
    }
}

/// Returns whether the system lets this process read only.
fn forbids_writing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ROFS | Errno::ACCESS | Errno::PERM))
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that another thread starts has a copy of the descriptor until it begins its
        // program, and with it the lock, unless that is given back.
        if let Some(file) = &self.file {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// A process that has a journal open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its pid on its host, and the host's name.
    process: Option<(String, String)>,
}

impl Holder {
    fn is_elsewhere(&self) -> bool {
        self.process.as_ref().is_some_and(|(_, host)| *host != host_name())
    }
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
        Err(Errno::WOULDBLOCK) => Some(named(&file)),
        _ => None,
    }
}

fn named(file: &File) -> Holder {
    let mut holder = [0; 512];
    let len = file.read_at(&mut holder, 0).unwrap_or(0);
    let holder = String::from_utf8_lossy(&holder[..len]);
    let process = holder.trim().split_once(' ');
    Holder { process: process.map(|(pid, host)| (pid.to_owned(), host.to_owned())) }
}

/// Returns the error that names the process with the lock.
fn held(folder: &Folder, holder: &Holder) -> Error {
    folder.error(format!(
        "{holder} records in it: one process at a time can. Wait until it ends, stop it, or use \
         another journal"
    ))
}
