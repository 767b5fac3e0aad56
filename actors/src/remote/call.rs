//! Calls that wait for their answer.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, ExitReason, Result, block_on, codec};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::mesh::{Answer, CallFailure, Unanswered};
use crate::supervisor::current_actor;

/// The answer of an actor in another process.
///
/// The call runs whether or not this is awaited. Dropping it does not take the message back.
#[must_use = "the answer tells whether it worked: use `.await` or `.wait()`, or send with `do_send`"]
pub struct Call<R> {
    state: State,
    actor: Arc<str>,
    message: &'static str,
    caller: Option<Arc<str>>,
    value: PhantomData<fn() -> R>,
}

enum State {
    Refused(Option<Error>),
    Waiting(oneshot::Receiver<Answer>),
}

impl<R> Call<R> {
    pub(super) fn new<M>(actor: &Arc<str>, answer: Result<oneshot::Receiver<Answer>>) -> Call<R> {
        let state = match answer {
            Ok(answer) => State::Waiting(answer),
            Err(error) => State::Refused(Some(error)),
        };
        Call {
            state,
            actor: Arc::clone(actor),
            message: type_name::<M>(),
            caller: current_actor(),
            value: PhantomData,
        }
    }
}

impl<R: DeserializeOwned> Call<R> {
    /// Blocks this thread until the answer is there.
    ///
    /// # Errors
    /// [`Error::Call`] with what went wrong in the handler; [`Error::ActorStopped`] with the
    /// reason, if the actor or its process ended before it has answered; [`Error::TimedOut`],
    /// [`Error::MailboxFull`], [`Error::TooLarge`]; [`Error::WouldDeadlock`] on fiber's own
    /// threads.
    pub fn wait(self) -> Result<R> {
        block_on(self)
    }

    fn conclude(&self, answer: Answer) -> Result<R> {
        let actor = || self.actor.to_string();
        Err(match answer {
            Ok(value) => return codec::decode(&value),
            Err(Unanswered::Failed(CallFailure::Failed(failure))) => {
                Error::Call { actor: actor(), message: self.message, failure }
            }
            Err(Unanswered::Failed(CallFailure::Stopped(reason)) | Unanswered::Lost(reason)) => {
                stopped(&self.actor, reason)
            }
            Err(Unanswered::Failed(CallFailure::Full { capacity })) => {
                Error::MailboxFull { name: actor(), capacity }
            }
            Err(Unanswered::Refused(error)) => error,
            Err(Unanswered::TimedOut(limit)) => {
                let caller =
                    self.caller.as_ref().map(|caller| format!(" that actor `{caller}` waits for"));
                let caller = caller.unwrap_or_default();
                let what =
                    format!("the answer of actor `{}` to `{}`{caller}", self.actor, self.message);
                Error::TimedOut { what, limit }
            }
        })
    }
}

impl<R> Unpin for Call<R> {}

impl<R: DeserializeOwned> Future for Call<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let answer = match &mut self.state {
            State::Refused(error) => {
                return Poll::Ready(Err(error
                    .take()
                    .expect("a future is not polled after its end")));
            }
            State::Waiting(answer) => ready!(Pin::new(answer).poll(context)),
        };
        let gone =
            |_| Err(Unanswered::Lost(ExitReason::LinkLost("its process stopped answering".into())));
        Poll::Ready(self.conclude(answer.unwrap_or_else(gone)))
    }
}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("actor", &self.actor)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

/// What a caller is told of an actor that it can't reach.
pub(super) fn stopped(name: &str, reason: ExitReason) -> Error {
    Error::ActorStopped { name: name.into(), reason }
}
