//! Signals that end this process.

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
    // Before the children are killed: that is no death.
    timeline::finish();
    let ended = tokio::time::timeout(runtime.exit_timeout(), all_ended(runtime.kill_children()));
    // A second signal ends the wait.
    tokio::select! {
        _ = ended => {}
        _ = signals.next() => {}
    }
    fiber_backends::flush_within(EXIT_TIMEOUT);
    telemetry::finish(EXIT_TIMEOUT);
    let _ = signal_hook::low_level::emulate_default_handler(number);
}
