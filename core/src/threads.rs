//! Threads, and work that would hold up the runtime.

use std::io;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit};
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
    start_boxed(Builder::new().name(name.into()), Box::new(run))
}

/// The stack of a thread where that of the main thread has no limit, in bytes.
const UNLIMITED: u64 = 8 << 20;
/// The bounds of the stack of a thread, in bytes.
const LEAST: u64 = 2 << 20;
const MOST: u64 = 1 << 30;

/// As [`start_thread`], for a thread that runs code of the program: its stack is as large as that
/// of the main thread, so that it does not matter which of them runs a task.
///
/// # Errors
/// If the system has no thread to spare.
pub fn start_user_thread(
    name: impl Into<String>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let size = getrlimit(Resource::Stack).current.unwrap_or(UNLIMITED).clamp(LEAST, MOST);
    start_boxed(Builder::new().name(name.into()).stack_size(size as usize), Box::new(run))
}

fn start_boxed(thread: Builder, run: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    #[cfg(feature = "simulation")]
    crate::simulation::check_threads()?;
    thread.spawn(run)
}
