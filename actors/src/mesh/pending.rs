//! The calls to another node that wait for their answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fiber_core::transfer::KeepAlive;
use parking_lot::Mutex;

use super::deadlines::{Answer, Unanswered, Waiter};
use super::route::Route;
use super::wire::{CallFailure, CallId, NO_ANSWER, Payload};

/// A call that waits for its answer.
pub(crate) struct Pending {
    pub(crate) waiter: Waiter,
    /// How it finds its actor again.
    pub(crate) route: Option<Arc<Route>>,
    /// What is to be sent again if the actor dies.
    pub(crate) again: Option<Payload>,
    /// Counts it for as long as it waits.
    pub(crate) load: Option<Load>,
    /// Of the message.
    pub(crate) _keep_alive: KeepAlive,
}

impl Pending {
    /// One that is neither sent again nor counted.
    pub(crate) fn new(waiter: Waiter) -> Pending {
        Pending { waiter, route: None, again: None, load: None, _keep_alive: KeepAlive::default() }
    }

    /// Tells who waits what came of the call.
    pub(crate) fn tell(self, answer: Answer) {
        // First, so that who has the answer finds it counted no more.
        drop(self.load);
        self.waiter.tell(answer);
    }
}

/// Counts a call that has not been answered.
pub(crate) struct Load(Arc<AtomicUsize>);

impl Load {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Load {
        count.fetch_add(1, Ordering::Relaxed);
        Load(Arc::clone(count))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All that go to one node.
pub(crate) struct Calls(Mutex<Waiting>);

struct Waiting {
    last: CallId,
    pending: HashMap<CallId, Pending>,
}

impl Calls {
    pub(crate) fn new() -> Calls {
        Calls(Mutex::new(Waiting { last: NO_ANSWER, pending: HashMap::new() }))
    }

    /// One more; its id is given.
    pub(crate) fn add(&self, pending: Pending) -> CallId {
        let mut waiting = self.0.lock();
        waiting.last += 1;
        let call = waiting.last;
        waiting.pending.insert(call, pending);
        call
    }

    /// An answer has come.
    pub(crate) fn settle(&self, call: CallId, answer: Result<Bytes, CallFailure>) {
        let pending = self.0.lock().pending.remove(&call);
        if let Some(pending) = pending {
            pending.tell(answer.map_err(Unanswered::Failed));
        }
    }

    /// Gives up all, in the order in which they were sent.
    pub(crate) fn take(&self) -> Vec<Pending> {
        let mut pending: Vec<_> = std::mem::take(&mut self.0.lock().pending).into_iter().collect();
        pending.sort_unstable_by_key(|(call, _)| *call);
        pending.into_iter().map(|(_, pending)| pending).collect()
    }
}
