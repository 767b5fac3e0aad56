//! Signals that end this process.

use std::future::Future;

use fiber_core::{Ignored, Signals};

use super::exit::{EXIT_TIMEOUT, all_ended};
use super::{Runtime, telemetry};
use crate::timeline;

/// Waits for a signal that ends programs; then ends the children, and this process in the way of
/// that signal.
pub(super) async fn end_by_signal(ignored: Ignored) {
    let Ok(mut signals) = Signals::listen_except(ignored) else {
        return tracing::warn!(
            "signals can't be handled: children end only when this process has ended"
        );
    };
    let number = signals.next().await;
    let Some(runtime) = Runtime::current() else { return };
    let second = async move {
        signals.next().await;
    };
    runtime.end_as_by_signal(number, second).await;
}

impl Runtime {
    /// Ends the children, and then this process in the way of a signal. `second` ends the wait for
    /// the children.
    pub(crate) async fn end_as_by_signal(&self, number: i32, second: impl Future<Output = ()>) {
        // Before the children are killed: that is no death.
        timeline::finish();
        let ended = tokio::time::timeout(self.exit_timeout(), all_ended(self.kill_children()));
        tokio::select! {
            _ = ended => {}
            () = second => {}
        }
        fiber_backends::flush_within(EXIT_TIMEOUT);
        telemetry::finish(EXIT_TIMEOUT);
        let _ = signal_hook::low_level::emulate_default_handler(number);
    }
}
