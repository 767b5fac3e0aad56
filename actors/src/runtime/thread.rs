//! The background thread.

use std::io;
use std::thread;

use actix_rt::{Arbiter, ArbiterHandle};
use fiber_core::{Error, Result, forbid_waiting, shortage};

use crate::tokio_runtime::new_runtime;

/// Starts the background thread with an actix system.
///
/// # Errors
/// [`Error::System`] if the system has no room for it.
pub(super) fn start() -> Result<ArbiterHandle> {
    let (started, arbiter) = std::sync::mpsc::channel();
    let run = move || {
        forbid_waiting();
        let runtime = match new_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        actix_rt::System::with_tokio_rt(|| runtime).block_on(async {
            let _ = started.send(Ok(Arbiter::current()));
            std::future::pending::<()>().await;
        });
    };
    let refused = |problem: String| Error::system("fiber's thread could not be started", problem);
    let spawned = thread::Builder::new().name("fiber-runtime".into()).spawn(run).map(drop);
    let arbiter =
        spawned.and_then(|()| arbiter.recv().unwrap_or_else(|ended| Err(io::Error::other(ended))));
    arbiter.map_err(|error| refused(shortage::explain(&error)))
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
