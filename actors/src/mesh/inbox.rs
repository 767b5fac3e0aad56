//! What waits for an actor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fiber_core::entry::EntryRef;
use fiber_core::{ExitReason, Failure, FailureKind};
use fiber_transport::Link;
use parking_lot::Mutex;

use super::pending::Calls;
use super::wire::{self, CallFailure, CallId, NO_ANSWER};

/// The messages for one actor, in the order in which they came. It outlives the actor's
/// incarnations.
pub(crate) struct Inbox {
    state: Mutex<State>,
    capacity: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Delivery>,
    reader: Option<Waker>,
    closed: Option<ExitReason>,
}

/// A message that came for an actor.
pub(crate) struct Delivery {
    pub(crate) method: EntryRef,
    pub(crate) message: Bytes,
    pub(crate) responder: Responder,
}

impl Inbox {
    /// One that holds at most `capacity` messages.
    pub(crate) fn new(capacity: usize) -> Inbox {
        Inbox { state: Mutex::default(), capacity }
    }

    /// Puts a message behind the others, or fails it.
    pub(crate) fn push(&self, delivery: Delivery) {
        let refusal = {
            let mut state = self.state.lock();
            match &state.closed {
                Some(reason) => CallFailure::Stopped(reason.clone()),
                None if state.waiting.len() >= self.capacity => {
                    CallFailure::Full { capacity: self.capacity }
                }
                None => {
                    state.waiting.push_back(delivery);
                    if let Some(reader) = state.reader.take() {
                        drop(state);
                        reader.wake();
                    }
                    return;
                }
            }
        };
        delivery.responder.fail(&refusal);
    }

    /// The next message. `Ready(None)` when it is closed.
    pub(crate) fn poll_next(&self, task: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.state.lock();
        match state.waiting.pop_front() {
            Some(delivery) => Poll::Ready(Some(delivery)),
            None if state.closed.is_some() => Poll::Ready(None),
            None => {
                if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(task.waker())) {
                    state.reader = Some(task.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().closed.is_none()
    }

    /// Fails what waits, and what comes from now on.
    pub(crate) fn close(&self, reason: &ExitReason) {
        let mut state = self.state.lock();
        state.closed.get_or_insert_with(|| reason.clone());
        let waiting = std::mem::take(&mut state.waiting);
        let reader = state.reader.take();
        drop(state);
        waiting
            .into_iter()
            .for_each(|delivery| delivery.responder.fail(&CallFailure::Stopped(reason.clone())));
        reader.into_iter().for_each(Waker::wake);
    }
}

/// Answers a call, exactly once. Dropped without a word it says that nobody will answer.
pub(crate) struct Responder {
    to: Option<(ReplyTo, CallId)>,
}

/// Where a call came from.
pub(crate) enum ReplyTo {
    Link(Arc<dyn Link>),
    /// This very process.
    Here(Arc<Calls>),
}

impl Responder {
    pub(crate) fn new(to: ReplyTo, call: CallId) -> Responder {
        Responder { to: (call != NO_ANSWER).then_some((to, call)) }
    }

    /// Whether anybody wants an answer.
    pub(crate) fn is_wanted(&self) -> bool {
        self.to.is_some()
    }

    /// Gives the value that was appended to [`wire::answer_head`].
    pub(crate) fn answer(mut self, frame: Vec<u8>) {
        match self.to.take() {
            // A caller that is gone needs no answer.
            Some((ReplyTo::Link(link), call)) => drop(link.send(wire::answer(call, frame))),
            Some((ReplyTo::Here(calls), call)) => calls.settle(call, Ok(wire::answer_value(frame))),
            None => {}
        }
    }

    pub(crate) fn fail(mut self, failure: &CallFailure) {
        self.fail_now(failure);
    }

    fn fail_now(&mut self, failure: &CallFailure) {
        match self.to.take() {
            Some((ReplyTo::Link(link), call)) => drop(link.send(wire::failed(call, failure))),
            Some((ReplyTo::Here(calls), call)) => calls.settle(call, Err(failure.clone())),
            None => tracing::debug!("a message that wanted no answer failed: {failure:?}"),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.is_wanted() {
            let problem = "the future that was to give the answer panicked, or was dropped";
            self.fail_now(&CallFailure::Failed(Failure::new(FailureKind::Result, problem)));
        }
    }
}
