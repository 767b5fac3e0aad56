//! The messages that wait for an actor.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Instant;

use fiber_core::stats::{ActorStats, Distribution, Report};
use fiber_core::{ExitReason, Failure, FailureKind, ProcessId};
use fiber_transport::{Link, Received};
use fiber_values::entry::EntryRef;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::dead_letters::DeadLetters;
use super::pace::Pace;
use super::pending::Calls;
use super::wire::{self, ActorId, AnswerFrame, CallFailure, CallId, NO_ANSWER};
use crate::sources::{Source, Sources};

thread_local! {
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread has read messages of an actor.
pub(crate) fn is_reader() -> bool {
    READS.get()
}

/// So many messages or answers may keep others from being freed that came with them. Most wait for
/// a short time, for which a copy would not pay.
pub(super) const SHARING: usize = 64;

/// What happens when a message comes to a full mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Full {
    /// The message fails: its call with
    /// [`Error::MailboxFull`](fiber_core::Error::MailboxFull). A message without an answer is
    /// dropped, and counts as a [dead letter](fiber_core::stats::EventKind::DeadLetters).
    #[default]
    Fail,
    /// The message that has waited longest fails in this way, and makes room. It suits messages of
    /// which the latest counts, such as positions or prices.
    DropOldest,
    /// The message waits in its sender's process until there is room, behind earlier ones to the
    /// actor, also while the actor restarts.
    ///
    /// The mailbox has as many places for each process as its capacity says. A message has one
    /// until it is answered, so an actor that awaits the answer of a message to itself needs a
    /// second one. Urgent messages need none. The time limit of a call counts while it waits. No
    /// sender is blocked: one that goes on without awaiting answers holds its messages in its own
    /// memory.
    Wait,
}

/// The messages for one actor, in the order of their arrival. The inbox outlives the incarnations
/// of the actor.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<InboxState>,
    capacity: usize,
    full: Full,
    /// The actor's type.
    reader: OnceLock<&'static str>,
    /// How many incarnations of the actor have begun to read after the first.
    restarts: AtomicU64,
    /// The actor's number in this process, and where messages count that are not delivered.
    reachable: OnceLock<(ActorId, Arc<DeadLetters>)>,
}

#[derive(Default)]
struct InboxState {
    /// They come before those that wait.
    urgent: VecDeque<IncomingMessage>,
    waiting: VecDeque<IncomingMessage>,
    reader: Option<Waker>,
    /// The thread on which the messages are read.
    thread: Option<ThreadId>,
    closed: Option<ExitReason>,
    /// When the first of the messages arrived that the actor is about to handle.
    since: Option<Instant>,
    failed: u64,
    /// The times from a message's arrival to the return of its handler. Messages that are handled
    /// in one turn count with the time of the first.
    latency: Distribution,
    pace: Pace,
}

/// A message from another process, or from this one by a remote address.
pub struct IncomingMessage {
    /// The entry of the function that decodes the message and passes it to the actor's handler.
    pub method: EntryRef,
    /// The encoded message, with its blobs.
    pub message: Received,
    /// Answers the sender, if it expects an answer.
    pub responder: Responder,
    /// When nobody waits for the answer any more.
    pub deadline: Option<Instant>,
    /// Whether the message comes before messages that are not urgent.
    pub urgent: bool,
}

impl InboxState {
    fn len(&self) -> usize {
        self.urgent.len() + self.waiting.len()
    }

    fn pop(&mut self) -> Option<IncomingMessage> {
        self.urgent.pop_front().or_else(|| self.waiting.pop_front())
    }
}

impl Inbox {
    /// Returns an inbox for at most `capacity` messages.
    pub fn new(capacity: usize, full: Full) -> Inbox {
        Inbox { capacity, full, ..Inbox::default() }
    }

    /// Notes that the inbox can be reached by this number. Messages that are not delivered count
    /// among `dead_letters`.
    pub(super) fn set_reachable(&self, number: ActorId, dead_letters: &Arc<DeadLetters>) {
        let _ = self.reachable.set((number, Arc::clone(dead_letters)));
    }

    /// Adds a message that arrives at the time `now`, or fails it if the inbox is full or closed.
    pub(crate) fn push(&self, mut message: IncomingMessage, now: Instant) {
        let (refused, refusal) = {
            let mut state = self.state.lock();
            // Senders that wait for room have counted their messages.
            let is_full = self.full != Full::Wait && state.len() >= self.capacity;
            if let Some(reason) = &state.closed {
                (message, CallFailure::Stopped(reason.clone()))
            } else if is_full && self.full == Full::Fail {
                (message, CallFailure::Full { capacity: self.capacity })
            } else {
                let oldest = if is_full {
                    state.waiting.pop_front().or_else(|| state.urgent.pop_front())
                } else {
                    None
                };
                if state.len() >= SHARING {
                    message.message = message.message.unshared();
                }
                state.since.get_or_insert(now);
                let queue = if message.urgent { &mut state.urgent } else { &mut state.waiting };
                queue.push_back(message);
                let reader = state.reader.take();
                drop(state);
                reader.into_iter().for_each(Waker::wake);
                let Some(oldest) = oldest else { return };
                (oldest, CallFailure::Full { capacity: self.capacity })
            }
        };
        self.refuse(refused, &refusal);
    }

    /// Fails a message that the actor does not get.
    fn refuse(&self, message: IncomingMessage, refusal: &CallFailure) {
        if message.responder.expects_answer() {
            return message.responder.fail(refusal);
        }
        let Some((_, dead_letters)) = self.reachable.get() else { return };
        let name = self.reader.get().copied().unwrap_or("an actor that has not started");
        match refusal {
            CallFailure::Stopped(reason) => dead_letters.note(name, 1, reason),
            _ => dead_letters.note(
                name,
                1,
                format_args!("its mailbox is full: {} messages wait", self.capacity),
            ),
        }
    }

    /// Returns the next message, or `None` when the inbox is closed.
    pub fn poll_next(&self, task: &mut Context<'_>) -> Poll<Option<IncomingMessage>> {
        let mut state = self.state.lock();
        match state.pop() {
            Some(message) => Poll::Ready(Some(message)),
            None if state.closed.is_some() => Poll::Ready(None),
            None => {
                if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(task.waker())) {
                    state.reader = Some(task.waker().clone());
                    state.thread = Some(thread::current().id());
                    READS.set(true);
                }
                Poll::Pending
            }
        }
    }

    /// Notes that the actor has handled `handled` messages until `now`. With `failed`, the handler
    /// of the last one panicked.
    pub fn note_turn(&self, handled: u64, failed: bool, now: Instant) {
        let mut state = self.state.lock();
        let more = (state.len() > 0).then_some(now);
        let before = state.latency.count();
        state.pace.note(now, before);
        if let Some(since) = std::mem::replace(&mut state.since, more) {
            let nanos = now.saturating_duration_since(since).as_nanos() as u64;
            state.latency.record(nanos, handled);
        }
        state.failed += u64::from(failed);
    }

    /// Makes the statistics of this inbox visible as those of an actor of type `reader`, unless it
    /// is one of fiber's own. Each incarnation of the actor calls it.
    pub fn read_by(self: &Arc<Inbox>, reader: &'static str, sources: &'static Sources) {
        match self.reader.set(reader) {
            Ok(()) if is_of_fiber(reader) => {}
            Ok(()) => sources.register(self),
            Err(_) => self.note_restart(),
        }
    }

    /// Notes that the actor is restarted, for one whose incarnations share a reader.
    pub fn note_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the thread that reads the messages, once it has begun.
    pub(crate) fn thread(&self) -> Option<ThreadId> {
        self.state.lock().thread
    }

    /// Returns whether the inbox is not closed. One that is full refuses messages for now.
    pub fn is_open(&self) -> bool {
        self.closed().is_none()
    }

    /// Returns why the inbox is closed, if it is.
    pub(crate) fn closed(&self) -> Option<ExitReason> {
        self.state.lock().closed.clone()
    }

    /// Closes the inbox: fails the messages in it, and all later ones.
    pub fn close(&self, reason: &ExitReason) {
        let mut state = self.state.lock();
        state.closed.get_or_insert_with(|| reason.clone());
        let mut waiting = std::mem::take(&mut state.urgent);
        waiting.append(&mut state.waiting);
        let reader = state.reader.take();
        drop(state);
        let refusal = CallFailure::Stopped(reason.clone());
        waiting.into_iter().for_each(|message| self.refuse(message, &refusal));
        reader.into_iter().for_each(Waker::wake);
    }
}

/// Returns whether an actor of this type works for fiber itself. One that keeps actors of the user
/// has their type in its own.
fn is_of_fiber(actor: &str) -> bool {
    actor.starts_with("fiber_remote::") && !actor.contains('<')
}

impl Source for Inbox {
    fn report(&self, process: ProcessId, report: &mut Report) {
        let (Some((number, _)), Some(reader)) = (self.reachable.get(), self.reader.get()) else {
            return;
        };
        let mut state = self.state.lock();
        if state.closed.is_some() {
            // It is kept for late callers alone.
            return;
        }
        let mut stats = ActorStats::new(process, number.0, reader);
        (stats.waiting, stats.failed) = (state.len() as u64, state.failed);
        (stats.handled, stats.latency) = (state.latency.count(), state.latency.clone());
        stats.rate = state.pace.rate(Instant::now(), stats.handled);
        stats.restarts = self.restarts.load(Ordering::Relaxed);
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

    /// Returns the responder of a message that wants no answer.
    pub(crate) fn none() -> Responder {
        Responder { to: None }
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn few_of_the_messages_that_wait_keep_what_came_with_them() {
        let received = Bytes::from(vec![0; 64 << 10]);
        let inbox = Inbox::new(usize::MAX, Full::Fail);
        for place in 0..2 * SHARING {
            let message = IncomingMessage {
                method: EntryRef { offset: 0, name: 0 },
                message: received.slice(place..=place).into(),
                responder: Responder::none(),
                deadline: None,
                urgent: false,
            };
            inbox.push(message, Instant::now());
        }
        let mut state = inbox.state.lock();
        assert!(!received.is_unique());
        (0..SHARING).for_each(|_| drop(state.pop()));
        assert!(received.is_unique());
        assert_eq!(state.len(), SHARING);
    }
}
