//! SIGTERM at a process of entities: its machine is drained, a spot instance ends, a user stops it.
//!
//! The process keeps its keys until its owner has moved them to other processes, and stops it. After
//! the grace period it ends without waiting for that.

use fiber_core::Signals;
use fiber_runtime::runtime::Runtime;
use tokio::time::sleep;

use super::coordinator::Coordinator;
use super::wire::{KeeperId, Leaving};
use crate::remote::RemoteAddr;

/// Handles SIGTERM from now on.
pub(super) fn listen(
    runtime: &'static Runtime,
    coordinator: RemoteAddr<Coordinator>,
    keeper: KeeperId,
) {
    runtime.spawn(move || async move {
        let mut signals = match Signals::listen_for_sigterm() {
            Ok(signals) => signals,
            Err(error) => {
                return tracing::warn!("SIGTERM can't be handled, and ends this process: {error}");
            }
        };
        let sigterm = signals.next().await;
        coordinator.do_send(Leaving(keeper));
        // Further signals change nothing: kubelets, shells and init systems repeat them.
        sleep(runtime.config().grace).await;
        runtime.end_as_by_signal(sigterm).await;
    });
}
