//! Runtimes of tokio, made only while the system has room for them.

use std::io;

use rustix::event::{EventfdFlags, eventfd};
use tokio::runtime::{Builder, Runtime};

/// Descriptors that a runtime takes: its poll and its waker, the pipe of the process's signals, and
/// its own end of that.
const DESCRIPTORS: usize = 5;

/// Makes a runtime for the current thread.
///
/// # Errors
/// What the system is short of.
pub(crate) fn new_runtime() -> io::Result<Runtime> {
    // tokio panics if it can't make the pipe of the process's signals, and does so at every later
    // attempt too.
    let room: io::Result<Vec<_>> = (0..DESCRIPTORS)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from))
        .collect();
    drop(room?);
    Builder::new_current_thread().enable_all().build()
}
