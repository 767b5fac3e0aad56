//! Calls to actors that wait for their answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

use fiber_core::{Error, Result, is_blocked};
use fiber_transport::Received;
use fiber_values::codec;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::mesh::{ActorId, Answer, Ask, ProcessRef, Unanswered, is_reader};
use crate::runtime::Runtime;

/// A call of an actor in another process.
pub struct PendingCall<R> {
    answer: oneshot::Receiver<Answer>,
    decode: fn(&Received) -> Result<R>,
    actor: Arc<str>,
    message: &'static str,
    caller: Option<Arc<str>>,
    /// The process that owns or has exported the actor that is to answer, and its number where it
    /// runs, if that may need a thread that waits for the answer.
    target: Option<(ProcessRef, ActorId)>,
}

impl<R> PendingCall<R> {
    /// `caller` is the actor that calls, if an actor does. Errors name all three.
    pub fn new(
        answer: oneshot::Receiver<Answer>,
        actor: &Arc<str>,
        message: &'static str,
        caller: Option<Arc<str>>,
    ) -> PendingCall<R>
    where
        R: DeserializeOwned,
    {
        let decode = |value: &Received| codec::decode_with(value, &value.blobs);
        PendingCall { answer, decode, actor: Arc::clone(actor), message, caller, target: None }
    }

    /// Says which actor is to answer: who owns or has exported it, and its number where it runs.
    /// `is_here`: this process has exported it.
    pub fn by(mut self, home: &ProcessRef, actor: ActorId, is_here: bool) -> PendingCall<R> {
        // Only threads of actors wait in circles.
        let may_wait_for_itself = is_here || self.caller.is_some() || is_reader();
        self.target = may_wait_for_itself.then(|| (home.clone(), actor));
        self
    }

    /// Returns whether the actor that is to answer needs this thread.
    fn needs_this_thread(&self) -> bool {
        let Some((home, actor)) = &self.target else { return false };
        let inbox = Runtime::get().map(|runtime| runtime.registry().inbox_here(home.id, *actor));
        let reader = inbox.ok().flatten().and_then(|inbox| inbox.thread());
        reader == Some(thread::current().id())
    }

    /// Returns the call as one that may be part of a circle.
    pub(super) fn ask(&self) -> Option<Ask> {
        let (caller, callee) = (self.caller.clone(), Arc::clone(&self.actor));
        self.target.clone().map(|target| Ask { caller, callee, target })
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<R>> {
        let answer = Pin::new(&mut self.answer).poll(context);
        if answer.is_pending() && is_blocked() && self.needs_this_thread() {
            return Poll::Ready(Err(Error::WouldDeadlock));
        }
        Poll::Ready(self.conclude(ready!(answer).unwrap_or_else(Unanswered::gone)))
    }

    /// Returns the name of the answer in errors.
    pub(super) fn what(&self) -> String {
        let caller = self.caller.as_ref().map(|caller| format!(" that actor `{caller}` waits for"));
        let caller = caller.unwrap_or_default();
        format!("the answer of actor `{}` to `{}`{caller}", self.actor, self.message)
    }

    fn conclude(&self, answer: Answer) -> Result<R> {
        let stopped = |reason| Error::ActorStopped { name: self.actor.to_string(), reason };
        let what = || self.what() + &circle(self.ask().as_ref());
        match answer {
            Ok(value) => (self.decode)(&value),
            Err(unanswered) => {
                Err(unanswered.into_error(&self.actor, self.message, &stopped, &what))
            }
        }
    }
}

/// Returns what an error says of the circle of which this thread's wait for an answer is part, if
/// that is known.
pub(super) fn circle(ask: Option<&Ask>) -> String {
    let find = |ask| Runtime::get().ok()?.registry().waits().circle_here(ask);
    let circle = ask.and_then(find);
    circle.map(|circle| format!(" (in a circle: {circle})")).unwrap_or_default()
}
