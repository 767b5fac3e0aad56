//! Wakes the thread of the rank's function, which waits in `poll`.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd that other threads notify. It stays readable until the thread clears it.
#[derive(Debug)]
pub(crate) struct Wakeup(OwnedFd);

impl Wakeup {
    pub(crate) fn new() -> std::io::Result<Wakeup> {
        Ok(Wakeup(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn notify(&self) {
        // It fails only after 2^64 notifications without a clear.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.0
    }
}
