//! Wakes the thread of the rank's function, which waits for other ranks.

use std::os::fd::OwnedFd;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

/// A notification from other threads. It stays until the thread takes it.
#[derive(Debug)]
pub(crate) enum Wakeup {
    /// For a rank that shares memory with others: its thread waits in `poll` for their sockets,
    /// too.
    File(OwnedFd),
    /// For a rank that has links alone.
    Flag(Mutex<bool>, Condvar),
}

impl Wakeup {
    pub(crate) fn new(shares_memory: bool) -> std::io::Result<Wakeup> {
        if !shares_memory {
            return Ok(Wakeup::Flag(Mutex::default(), Condvar::new()));
        }
        Ok(Wakeup::File(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn notify(&self) {
        match self {
            Wakeup::File(file) => {
                // It fails only after 2^64 notifications without a clear.
                let _ = rustix::io::write(file, &1u64.to_ne_bytes());
            }
            Wakeup::Flag(is_set, changed) => {
                *is_set.lock() = true;
                changed.notify_one();
            }
        }
    }

    /// Waits for a notification of the flag, and takes it.
    pub(super) fn wait(is_set: &Mutex<bool>, changed: &Condvar, limit: Duration) {
        let mut is_set = is_set.lock();
        changed.wait_while_for(&mut is_set, |is_set| !*is_set, limit);
        *is_set = false;
    }

    pub(super) fn clear(file: &OwnedFd) {
        let _ = rustix::io::read(file, &mut [0; 8]);
    }
}
