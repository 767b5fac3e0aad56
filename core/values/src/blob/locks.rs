//! Locks on ranges of an arena that one borrower has passed on to another.
//!
//! The owner of an arena knows its own borrowers. It does not know to whom they lend on. If a
//! process in between dies, its borrowers still read. Therefore they lock what they read, and the
//! owner uses memory that a dead process had borrowed only when no lock is on it. The kernel
//! removes the locks of processes that end.
//!
//! The locks are those of open files (`F_OFD_SETLK`), read locks on the bytes of the range. All
//! processes share one open file when a descriptor is sent, so each opens the memory once more for
//! its locks. This file has the `unsafe` code of the calls.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::mapping::read_only;

/// The locks of this process on an arena.
#[derive(Default)]
pub(super) struct Locks {
    file: Option<OwnedFd>,
    /// How many blobs read each locked range, by offset.
    ranges: HashMap<usize, usize>,
}

impl Locks {
    /// Locks a range of the memory behind `file`.
    pub(super) fn add(&mut self, file: &OwnedFd, offset: usize, len: usize) -> io::Result<()> {
        let own = match &self.file {
            Some(own) => own,
            None => self.file.insert(read_only(file)?),
        };
        let readers = self.ranges.entry(offset).or_default();
        if *readers == 0 {
            fcntl(own, libc::F_OFD_SETLK, libc::F_RDLCK, offset, len)?;
        }
        *readers += 1;
        Ok(())
    }

    /// Removes a lock.
    pub(super) fn remove(&mut self, offset: usize, len: usize) {
        if let (Some(readers), Some(own)) = (self.ranges.get_mut(&offset), &self.file) {
            *readers -= 1;
            if *readers == 0 {
                self.ranges.remove(&offset);
                // It fails only for a descriptor or a range that is none.
                let _ = fcntl(own, libc::F_OFD_SETLK, libc::F_UNLCK, offset, len);
            }
        }
    }

    /// Returns the open file of this process's own locks.
    pub(super) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }
}

/// Returns whether a lock is on a part of the range that was not made through `file`.
pub(super) fn is_locked(file: &OwnedFd, offset: usize, len: usize) -> bool {
    // If the kernel can't say, the range stays as it is.
    fcntl(file, libc::F_OFD_GETLK, libc::F_WRLCK, offset, len)
        .map_or(true, |kind| kind != libc::F_UNLCK)
}

fn fcntl(file: &OwnedFd, command: i32, kind: i32, offset: usize, len: usize) -> io::Result<i32> {
    let out_of_range = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: offset.try_into().map_err(|_| out_of_range())?,
        l_len: len.try_into().map_err(|_| out_of_range())?,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and these commands read and write one `flock`.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        0 => Ok(lock.l_type.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
