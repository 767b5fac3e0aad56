//! Answers that wait until the state of their actor is kept.

use std::sync::Arc;
use std::task::{Context, Waker};

use fiber_core::at_exit::flush_output;
use fiber_core::{ExitReason, Failure, FailureKind};
use parking_lot::Mutex;

use super::method::Encoded;
use fiber_runtime::mesh::{CallFailure, Responder};

/// The answers of an actor whose owner keeps a snapshot before each. They outlive its incarnations.
///
/// One snapshot at a time is on its way. The next one is taken when the owner has kept it, for all
/// messages that were handled meanwhile.
#[derive(Default)]
pub(crate) struct HeldAnswers(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether the actor has handled messages since the last snapshot.
    is_due: bool,
    /// The answers that the next snapshot lets go.
    next: Vec<(Responder, Encoded)>,
    /// The answers that the snapshot on its way to the owner lets go.
    sent: Option<Vec<(Responder, Encoded)>>,
    /// Wakes the actor for the next snapshot.
    actor: Option<Waker>,
    /// Why the last incarnation ended.
    ended: Option<ExitReason>,
}

impl HeldAnswers {
    /// Notes that the actor has handled a message.
    pub(super) fn note_message(&self) {
        self.0.lock().is_due = true;
    }

    /// Holds an answer, which the next snapshot lets go.
    pub(super) fn hold(&self, responder: Responder, answer: Encoded) {
        let mut state = self.0.lock();
        state.is_due = true;
        state.next.push((responder, answer));
    }

    /// Returns whether a snapshot is to be taken now. If one is on its way, `task` is woken later.
    pub(super) fn is_due(&self, task: &Context<'_>) -> bool {
        let mut state = self.0.lock();
        if state.sent.is_some() {
            state.actor = Some(task.waker().clone());
            return false;
        }
        state.is_due
    }

    /// Notes that a snapshot was taken, which is sent next.
    pub(crate) fn taken(&self) {
        let mut state = self.0.lock();
        state.is_due = false;
        state.sent = Some(std::mem::take(&mut state.next));
    }

    /// Fails the answers for which no snapshot could be taken.
    pub(crate) fn not_taken(&self, problem: &str) {
        let failure = Failure::new(FailureKind::Result, problem);
        self.fail_next(&CallFailure::Failed(failure));
    }

    /// Notes that the owner keeps the snapshot, and lets its answers go.
    pub(crate) fn kept(&self) {
        let mut state = self.0.lock();
        let (answers, actor) = (state.sent.take(), state.actor.take());
        drop(state);
        // The owner may kill this process as soon as it has the answer.
        flush_output();
        for (responder, answer) in answers.into_iter().flatten() {
            respond(responder, answer);
        }
        actor.into_iter().for_each(Waker::wake);
    }

    /// Fails the answers that belong to the state of an incarnation that has ended.
    pub(super) fn ended(&self, reason: &ExitReason) {
        self.0.lock().ended = Some(reason.clone());
        self.fail_next(&CallFailure::Stopped(reason.clone()));
    }

    fn fail_next(&self, failure: &CallFailure) {
        let mut state = self.0.lock();
        state.is_due = false;
        let answers = std::mem::take(&mut state.next);
        drop(state);
        answers.into_iter().for_each(|(responder, _)| responder.fail(failure));
    }
}

impl Drop for HeldAnswers {
    /// Fails the answers whose snapshot the owner has not kept.
    fn drop(&mut self) {
        let State { sent, ended, .. } = self.0.get_mut();
        let failure = CallFailure::Stopped(ended.take().unwrap_or(ExitReason::Shutdown));
        sent.take().into_iter().flatten().for_each(|(responder, _)| responder.fail(&failure));
    }
}

/// Sends an answer to its caller.
pub(super) fn respond(responder: Responder, answer: Encoded) {
    match answer {
        Ok(frame) => responder.answer(frame),
        Err(failure) => responder.fail(&failure),
    }
}

/// The answers of an actor that holds them.
pub(crate) type Holding = Option<Arc<HeldAnswers>>;
