//! Keeping a runtime's thread awake for a moment, because what came last is seldom alone.

use std::future::Future;
use std::pin::pin;
use std::task::Context;

use fiber_core::Spin;

/// Has the task that waits polled again and again for a while, as [`Spin`] allows, in place of only
/// when it is woken.
#[derive(Debug, Default)]
pub struct BusyPoll(Spin);

impl BusyPoll {
    /// Something has come: the next wait begins anew.
    pub fn restart(&mut self) {
        self.0.restart();
    }

    /// Nothing is to be expected soon.
    pub fn stop(&mut self) {
        self.0.stop();
    }

    /// Nothing has come: asks for another turn, unless the thread may sleep by now.
    pub fn poll(&mut self, context: &mut Context<'_>) {
        if self.0.should_continue() {
            self.0.yield_core();
            // The runtime looks at its sockets and clocks before it has the task polled again,
            // which a wake-up of the waker itself would not make it do.
            let _ = pin!(tokio::task::yield_now()).poll(context);
        }
    }
}
