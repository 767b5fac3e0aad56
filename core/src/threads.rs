//! Threads, and work that would hold up the runtime.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::shortage::Explained;

/// Runs `work` on a thread of its own, in the context of the caller's runtime, and returns what it
/// returns. If the future is dropped, the work goes on.
///
/// tokio's `spawn_blocking` panics where the system has no thread to spare.
///
/// # Errors
/// [`Error::System`] if no thread can be started, with the limit and the remedy, or if `work`
/// panics.
pub async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (done, result) = oneshot::channel();
    let runtime = Handle::try_current();
    let run = move || {
        let _entered = runtime.as_ref().map(Handle::enter);
        // Nobody may wait for the result any more.
        drop(done.send(work()));
    };
    start_thread("fiber-work", run)
        .map_err(|error| Error::system("starting a thread", Explained(error)))?;
    result.await.map_err(|_| Error::system("work on a thread of its own", "it panicked"))
}

/// Starts a thread with a name.
///
/// The standard library compiles 2,000 lines of LLVM IR for each type of function that a thread
/// runs. This function has one type, a box.
///
/// # Errors
/// If the system has no thread to spare.
pub fn start_thread(
    name: impl Into<String>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    start_boxed(name.into(), Box::new(run))
}

fn start_boxed(name: String, run: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    #[cfg(feature = "simulation")]
    crate::simulation::check_threads()?;
    thread::Builder::new().name(name).spawn(run)
}
