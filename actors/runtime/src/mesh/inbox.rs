//! The messages that wait for an actor.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use fiber_core::stats::{ActorStats, Distribution, Report};
use fiber_core::{ExitReason, Failure, FailureKind, ProcessId};
use fiber_transport::{Link, Received};
use fiber_values::entry::EntryRef;
use parking_lot::Mutex;

use super::pending::Calls;
use super::wire::{self, AnswerFrame, CallFailure, CallId, NO_ANSWER};
use crate::sources::{Registration, Source, Sources};

/// The messages for one actor, in the order of their arrival. The inbox outlives the incarnations
/// of the actor.
pub struct Inbox {
    state: Mutex<InboxState>,
    capacity: usize,
    /// The actor's type.
    reader: OnceLock<&'static str>,
    registration: Registration,
}

#[derive(Default)]
struct InboxState {
    waiting: VecDeque<IncomingMessage>,
    reader: Option<Waker>,
    closed: Option<ExitReason>,
    /// When the first of the messages arrived that the actor is about to handle.
    since: Option<Instant>,
    failed: u64,
    /// The times from a message's arrival to the return of its handler. Messages that are handled
    /// in one turn count with the time of the first.
    latency: Distribution,
}

/// A message from another process, or from this one by a remote address.
pub struct IncomingMessage {
    /// The entry of the function that decodes the message and passes it to the actor's handler.
    pub method: EntryRef,
    /// The encoded message, with its blobs.
    pub message: Received,
    /// Answers the sender, if it expects an answer.
    pub responder: Responder,
}

impl Inbox {
    /// Returns an inbox for at most `capacity` messages.
    pub fn new(capacity: usize) -> Inbox {
        Inbox {
            state: Mutex::default(),
            capacity,
            reader: OnceLock::new(),
            registration: Registration::default(),
        }
    }

    /// Adds a message that arrives at the time `now`, or fails it if the inbox is full or closed.
    pub(crate) fn push(&self, message: IncomingMessage, now: Instant) {
        let refusal = {
            let mut state = self.state.lock();
            match &state.closed {
                Some(reason) => CallFailure::Stopped(reason.clone()),
                None if state.waiting.len() >= self.capacity => {
                    CallFailure::Full { capacity: self.capacity }
                }
                None => {
                    state.since.get_or_insert(now);
                    state.waiting.push_back(message);
                    if let Some(reader) = state.reader.take() {
                        drop(state);
                        reader.wake();
                    }
                    return;
                }
            }
        };
        message.responder.fail(&refusal);
    }

    /// Returns the next message, or `None` when the inbox is closed.
    pub fn poll_next(&self, task: &mut Context<'_>) -> Poll<Option<IncomingMessage>> {
        let mut state = self.state.lock();
        match state.waiting.pop_front() {
            Some(message) => Poll::Ready(Some(message)),
            None if state.closed.is_some() => Poll::Ready(None),
            None => {
                if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(task.waker())) {
                    state.reader = Some(task.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Notes that the actor has handled `handled` messages until `now`. With `failed`, the handler
    /// of the last one panicked.
    pub fn note_turn(&self, handled: u64, failed: bool, now: Instant) {
        let mut state = self.state.lock();
        let more = (!state.waiting.is_empty()).then_some(now);
        if let Some(since) = std::mem::replace(&mut state.since, more) {
            let nanos = now.saturating_duration_since(since).as_nanos() as u64;
            state.latency.record(nanos, handled);
        }
        state.failed += u64::from(failed);
    }

    /// Makes the statistics of this inbox visible as those of an actor of type `reader`.
    pub fn read_by(self: &Arc<Inbox>, reader: &'static str, sources: &'static Sources) {
        if self.reader.set(reader).is_ok() {
            sources.register(self);
        }
    }

    /// Returns whether the inbox is not closed. One that is full refuses messages for now.
    pub fn is_open(&self) -> bool {
        self.state.lock().closed.is_none()
    }

    /// Closes the inbox: fails the messages in it, and all later ones.
    pub fn close(&self, reason: &ExitReason) {
        let mut state = self.state.lock();
        state.closed.get_or_insert_with(|| reason.clone());
        let waiting = std::mem::take(&mut state.waiting);
        let reader = state.reader.take();
        drop(state);
        waiting
            .into_iter()
            .for_each(|message| message.responder.fail(&CallFailure::Stopped(reason.clone())));
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Source for Inbox {
    fn registration(&self) -> &Registration {
        &self.registration
    }

    fn report(&self, process: ProcessId, report: &mut Report) {
        let state = self.state.lock();
        let name = self.reader.get().copied().unwrap_or_default();
        let mut stats = ActorStats::new(process, name.to_string());
        (stats.waiting, stats.failed) = (state.waiting.len() as u64, state.failed);
        (stats.handled, stats.latency) = (state.latency.count(), state.latency.clone());
        report.actors.push(stats);
    }
}

/// Answers a call, exactly once. If it is dropped without an answer, the call fails.
pub struct Responder {
    to: Option<(ReplyTo, CallId)>,
}

/// The origin of a call.
pub(crate) enum ReplyTo {
    Link(Arc<dyn Link>),
    /// This process.
    Local(Arc<Calls>),
}

impl Responder {
    pub(crate) fn new(to: ReplyTo, call: CallId) -> Responder {
        Responder { to: (call != NO_ANSWER).then_some((to, call)) }
    }

    /// Returns whether the caller expects an answer.
    pub fn expects_answer(&self) -> bool {
        self.to.is_some()
    }

    /// Answers with the value that the caller of this appended to [`wire::answer_head`].
    pub fn answer(mut self, answer: impl Into<AnswerFrame>) {
        let answer = answer.into();
        match self.to.take() {
            // A closed link means that the caller is gone.
            Some((ReplyTo::Link(link), call)) => drop(link.send(answer.into_message(call))),
            Some((ReplyTo::Local(calls), call)) => calls.complete(call, Ok(answer.into_value())),
            None => {}
        }
    }

    /// Answers that the call has failed. Without a caller that expects an answer, it is logged.
    pub fn fail(mut self, failure: &CallFailure) {
        self.fail_now(failure);
    }

    fn fail_now(&mut self, failure: &CallFailure) {
        match self.to.take() {
            Some((ReplyTo::Link(link), call)) => drop(link.send(wire::failed(call, failure))),
            Some((ReplyTo::Local(calls), call)) => calls.complete(call, Err(failure.clone())),
            None => tracing::debug!("a message that wanted no answer failed: {failure:?}"),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.expects_answer() {
            let problem = "the future that was to give the answer panicked, or was dropped";
            self.fail_now(&CallFailure::Failed(Failure::new(FailureKind::Result, problem)));
        }
    }
}
