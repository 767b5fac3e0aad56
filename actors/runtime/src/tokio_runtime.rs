//! Tokio runtimes, made only if the system has room for them.

use std::io;

use rustix::event::{EventfdFlags, eventfd};
use tokio::runtime::{Builder, Runtime};

/// The number of descriptors that a runtime takes: its poll and its waker, the pipe of the
/// process's signals, and its own end of that.
const DESCRIPTORS: usize = 5;

/// Makes a runtime for the current thread.
///
/// # Errors
/// The system's error if it is short of descriptors or memory.
pub fn new_runtime() -> io::Result<Runtime> {
    #[cfg(feature = "simulation")]
    if crate::parts::Parts::current().is_simulated() {
        fiber_core::simulation::check_descriptors()?;
        return Builder::new_current_thread().enable_time().build();
    }
    // If tokio can't make the pipe of the process's signals, it panics, then and at every later
    // attempt.
    let room: io::Result<Vec<_>> = (0..DESCRIPTORS)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from))
        .collect();
    drop(room?);
    Builder::new_current_thread().enable_all().build()
}
