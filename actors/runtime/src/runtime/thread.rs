//! The background thread.

use std::future::{Future, pending};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use actix_rt::{Arbiter, System};
use fiber_core::{Error, Relay, Result, block_on, forbid_waiting, forks, shortage, start_thread};
use tokio::sync::oneshot;

use crate::endpoint::RuntimeThread;
use crate::parts::Parts;
use crate::tokio_runtime::new_runtime;

/// Starts the background thread with an actix system, for the session of these parts. It runs as
/// long as the process.
///
/// # Errors
/// [`Error::System`] if the system has no room for it.
pub(super) fn start(parts: &'static Parts) -> Result<RuntimeThread> {
    let (thread, _) = start_until(parts, pending::<()>())?;
    forks::begin();
    Ok(thread)
}

/// Works as [`start`], for a thread that runs until `end`.
pub(super) fn start_until(
    parts: &'static Parts,
    end: impl Future + Send + 'static,
) -> Result<(RuntimeThread, JoinHandle<()>)> {
    // Not by a channel of the standard library: it has 5,000 lines of LLVM IR for each type.
    let (started, arbiter) = oneshot::channel();
    let relay = Arc::new(Relay::default());
    let served = Arc::clone(&relay);
    let run = move || {
        let _entered = parts.enter();
        forbid_waiting();
        let runtime = match new_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        let system = System::with_tokio_rt(|| runtime);
        system.block_on(async {
            let _ = started.send(Ok((Arbiter::current(), System::current().id())));
            served.serve(end).await;
            System::current().stop();
        });
        // Until its other arbiters have ended.
        let _ = system.run();
    };
    let refused = |error: io::Error| {
        Error::system("fiber's thread could not be started", shortage::explain(&error))
    };
    let thread = start_thread("fiber-runtime", run).map_err(refused)?;
    let started = block_on(async { Ok(arbiter.await) })?;
    let started = started.unwrap_or_else(|ended| Err(io::Error::other(ended)));
    let (arbiter, system) = started.map_err(refused)?;
    Ok((RuntimeThread { arbiter, system, relay }, thread))
}

/// Raises the limit of open files to the maximum: each child takes a few descriptors, and the usual
/// limit allows few children.
pub(super) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files can't be raised: {error}");
    }
}
