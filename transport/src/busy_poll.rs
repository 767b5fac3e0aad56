//! Keeping a runtime's thread awake for a moment, because messages seldom come alone.

use std::future::Future;
use std::pin::pin;
use std::task::Context;

use fiber_core::Spin;

/// Makes the runtime poll the waiting task again and again for a while, as [`Spin`] allows, and not
/// only when it is woken.
#[derive(Debug, Default)]
pub struct BusyPoll(Spin);

impl BusyPoll {
    /// Notes that something came: the next wait starts anew.
    pub fn restart(&mut self) {
        self.0.restart();
    }

    /// Notes that nothing is expected soon: the thread may sleep at once.
    pub fn stop(&mut self) {
        self.0.stop();
    }

    /// Asks for another poll of the task, unless it is time to sleep.
    pub fn poll(&mut self, context: &mut Context<'_>) {
        if self.0.should_continue() {
            self.0.yield_core();
            // After this, the runtime polls its sockets and timers before it polls the task again.
            // Waking the waker directly would skip that.
            let _ = pin!(tokio::task::yield_now()).poll(context);
        }
    }
}
