//! Signals that end this process.

use std::future::Future;

use fiber_core::{Ignored, StopSignals};

use super::drain::{DrainCause, TO_BE_CONTINUED};
use super::exit::EXIT_TIMEOUT;
use super::{Runtime, telemetry};
use crate::timeline::Timeline;

const SIGTERM: i32 = 15;

/// Waits for a signal that ends programs; then ends the children, and this process in the way of
/// that signal. SIGTERM lets a program with durable calls end in order. Any other program that
/// handles a signal itself ends itself.
pub(super) async fn end_by_signal(runtime: &'static Runtime, ignored: Ignored) {
    let Ok(mut signals) = StopSignals::listen(ignored) else {
        return tracing::warn!(
            "signals can't be handled: children end only when this process has ended"
        );
    };
    let lets_tasks_end = |number| number == SIGTERM && runtime.has_durable_calls();
    let mut number = signals.next(lets_tasks_end).await;
    let mut code = None;
    if lets_tasks_end(number) {
        tokio::select! {
            () = runtime.drain(DrainCause::Sigterm, runtime.config().grace) => code = Some(TO_BE_CONTINUED),
            second = signals.next(|_| true) => number = second,
        }
    }
    let another = async move {
        signals.next(|_| true).await;
    };
    runtime.finish(another).await;
    match code {
        Some(code) => signal_hook::low_level::exit(code),
        None => end_as_by(number),
    }
}

/// Ends this process as the signal does by itself.
fn end_as_by(number: i32) {
    // The first process of a container gets no signal that it does not handle.
    if std::process::id() == 1 {
        signal_hook::low_level::exit(128 + number);
    }
    let _ = signal_hook::low_level::emulate_default_handler(number);
}

impl Runtime {
    /// Ends the children, and then this process in the way of a signal.
    pub async fn end_as_by_signal(&self, number: i32) {
        self.finish(std::future::pending()).await;
        #[cfg(feature = "simulation")]
        if let Some(world) = fiber_core::simulation::world() {
            return world.exit();
        }
        end_as_by(number);
    }

    /// Ends the children, and then this process, which is to be started again.
    pub(super) async fn end_to_be_continued(&self) {
        self.finish(std::future::pending()).await;
        signal_hook::low_level::exit(TO_BE_CONTINUED);
    }

    /// Ends the children, until `signal` is ready, and sends what is left to send.
    async fn finish(&self, signal: impl Future<Output = ()>) {
        // Before the children are killed: that is no death.
        self.part::<Timeline>().finish();
        tokio::select! {
            _ = tokio::time::timeout(self.exit_timeout(), self.end_children()) => {}
            () = signal => {}
        }
        self.kill_children();
        fiber_backends::flush_within(EXIT_TIMEOUT);
        telemetry::finish(EXIT_TIMEOUT);
    }
}
