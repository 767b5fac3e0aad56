//! Futures that run beside others on their thread.

use std::pin::Pin;

use tokio::task::JoinHandle;

/// Runs a future on the thread of the caller's `LocalSet` or arbiter.
///
/// tokio compiles 4,000 lines of LLVM IR for each type of future that is spawned. This function
/// spawns one type, a box.
///
/// # Panics
/// As [`tokio::task::spawn_local`], without a `LocalSet` or an arbiter.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    spawn_boxed(Box::pin(future))
}

fn spawn_boxed(future: Pin<Box<dyn Future<Output = ()>>>) -> JoinHandle<()> {
    tokio::task::spawn_local(future)
}
