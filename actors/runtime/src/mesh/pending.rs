//! The calls to another process that wait for their answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fiber_transport::Received;
use fiber_values::transfer::KeepAlive;
use parking_lot::Mutex;

use super::deadlines::{Answer, Unanswered, Waiter};
use super::inbox::SHARING;
use super::route::Route;
use super::window::Place;
use super::wire::{CallFailure, CallId, Payload};

/// A call that waits for its answer.
pub struct Pending {
    /// The receiver of the answer.
    pub waiter: Waiter,
    /// The way to find the actor again after a restart.
    pub route: Option<Arc<Route>>,
    /// The payload, if it is sent again after the actor's death.
    pub resend: Option<Payload>,
    /// Counts the call until it is completed.
    pub load: Option<Load>,
    /// The call's place in the mailbox, if its actor lets callers wait for one.
    pub place: Option<Place>,
    /// Keeps the handles in the message alive.
    pub _keep_alive: KeepAlive,
}

impl Pending {
    /// Returns a call that is neither sent again nor counted.
    pub fn new(waiter: Waiter) -> Pending {
        let (resend, load, place) = (None, None, None);
        Pending { waiter, route: None, resend, load, place, _keep_alive: KeepAlive::default() }
    }

    /// Passes the answer on.
    pub fn complete(self, answer: Answer) {
        // This comes first: the caller that gets the answer may look at the count.
        drop((self.load, self.place));
        self.waiter.complete(answer);
    }
}

/// Counts a call until it is completed.
pub struct Load(Arc<AtomicUsize>);

impl Load {
    /// Adds one to `count` until the returned value is dropped.
    pub fn new(count: &Arc<AtomicUsize>) -> Load {
        count.fetch_add(1, Ordering::Relaxed);
        Load(Arc::clone(count))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All calls to one process that wait.
#[derive(Default)]
pub(crate) struct Calls(Mutex<PendingCalls>);

#[derive(Default)]
struct PendingCalls {
    /// [`NO_ANSWER`](super::wire::NO_ANSWER) before the first.
    last: CallId,
    pending: HashMap<CallId, Pending>,
}

impl Calls {
    /// Adds a call. Returns its id.
    pub(crate) fn add(&self, pending: Pending) -> CallId {
        let mut calls = self.0.lock();
        calls.last += 1;
        let call = calls.last;
        calls.pending.insert(call, pending);
        call
    }

    /// Completes a call with its answer.
    pub(crate) fn complete(&self, call: CallId, answer: Result<Received, CallFailure>) {
        let mut calls = self.0.lock();
        let pending = calls.pending.remove(&call);
        let many_wait = calls.pending.len() >= SHARING;
        drop(calls);
        if let Some(pending) = pending {
            // Its caller may await others first.
            let answer = if many_wait { answer.map(Received::unshared) } else { answer };
            pending.complete(answer.map_err(Unanswered::Failed));
        }
    }

    /// Removes all calls and returns them, in the order in which they were sent.
    pub(crate) fn take(&self) -> Vec<Pending> {
        let mut pending: Vec<_> = std::mem::take(&mut self.0.lock().pending).into_iter().collect();
        pending.sort_unstable_by_key(|(call, _)| *call);
        pending.into_iter().map(|(_, pending)| pending).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn an_answer_keeps_no_others_that_came_with_it_while_many_calls_wait() {
        let received = Bytes::from(vec![0; 64 << 10]);
        let calls = Calls::default();
        let wait = || {
            let (sender, answer) = oneshot::channel();
            (calls.add(Pending::new(Waiter::Sender(sender))), answer)
        };
        let waiting: Vec<_> = (0..2 * SHARING).map(|_| wait()).collect();
        let mut answers = Vec::new();
        for (call, answer) in waiting.into_iter().take(SHARING) {
            calls.complete(call, Ok(received.slice(..9).into()));
            answers.push(answer);
        }
        assert!(received.is_unique());
        let sizes = answers.iter_mut().map(|answer| answer.try_recv().unwrap().unwrap().len());
        assert!(sizes.eq([9; SHARING]));
    }
}
