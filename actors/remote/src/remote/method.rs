//! MethodCall an encoded message: one entry for each pair of an actor and a message type.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::sync::Arc;

use actix::dev::{MessageResponse, ToEnvelope};
use actix::{Actor, Addr, Handler};
use fiber_core::stacks::user_code;
use fiber_core::{Error, Failure, FailureKind};
use fiber_transport::Received;
use fiber_values::entry::{Entry, MethodFn};
use fiber_values::{codec, transfer};
use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::export::{CallEnd, PanicSlot};
use super::inbox_pump::{OpenCall, RunningCalls};
use super::message::RemoteMessage;
use fiber_runtime::mesh::{AnswerFrame, CallFailure, Responder, answer_head};
use fiber_supervisor::Incarnation;

/// A message that travels with `M` for its handler, and whose result has the handler's.
pub(crate) trait Carrier<M: RemoteMessage>: RemoteMessage {
    /// The conditions under which the result is made.
    type Terms: Copy + 'static;

    fn unpack(self) -> (M, Self::Terms);

    fn result(terms: Self::Terms, value: M::Result) -> Self::Result;
}

/// A message travels by itself.
impl<M: RemoteMessage> Carrier<M> for M {
    type Terms = ();

    fn unpack(self) -> (M, ()) {
        (self, ())
    }

    fn result((): (), value: M::Result) -> M::Result {
        value
    }
}

/// An encoded message for a handler, and its outcome.
pub(crate) struct MethodCall {
    pub(crate) message: Received,
    pub(super) expects_answer: bool,
    /// The maximum length of the answer, in bytes.
    pub(crate) limit: usize,
    pub(crate) outcome: CallOutcome,
    /// Until the method takes it.
    pub(super) responder: Option<Responder>,
    pub(super) running: Arc<RunningCalls>,
}

/// The outcome of a handler.
pub(crate) enum CallOutcome {
    /// No answer is expected, or the method answers itself.
    None,
    Now(Encoded),
    Later(LocalBoxFuture<'static, Encoded>),
}

/// An answer as a frame without its call id, or the failure.
pub(crate) type Encoded = Result<AnswerFrame, CallFailure>;

/// The handler of `M` in `A`, as other processes call it by a `C`.
pub(crate) struct Method<A, M, C>(PhantomData<(A, M, C)>);

impl<A, M, C> Method<A, M, C>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M> + 'static,
    M: RemoteMessage,
    C: Carrier<M>,
{
    pub(crate) const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<M>, Self::handle);

    /// Handles a message. `actor` is the actor, with its context; the address of the actor, with its
    /// [`PanicSlot`]; or an incarnation of a supervised actor, with the actor's name.
    fn handle(actor: &mut dyn Any, context: &mut dyn Any, call: &mut dyn Any) {
        let call =
            call.downcast_mut::<MethodCall>().expect("methods are called with a `MethodCall`");
        let (message, terms) = match codec::decode_with::<C>(&call.message, &call.message.blobs) {
            Ok(carrier) => Carrier::<M>::unpack(carrier),
            Err(error) => return call.fail(FailureKind::Arguments, &error),
        };
        let limit = call.limit;
        let encode = move |value| encode(limit, &<C as Carrier<M>>::result(terms, value));
        if let Some(addr) = actor.downcast_ref::<Addr<A>>() {
            if !call.expects_answer {
                return addr.do_send(message);
            }
            // A new clone of an address may add one message to a full mailbox, so messages keep
            // their order.
            let request = addr.clone().send(message);
            let panic = context.downcast_mut::<PanicSlot>().cloned().unwrap_or_default();
            call.outcome = CallOutcome::Later(Box::pin(async move {
                let answer = panic.witness(request).await.map_err(|end| match end {
                    CallEnd::Panicked(panic) => {
                        CallFailure::Failed(Failure::new(FailureKind::Panicked, panic))
                    }
                    CallEnd::Stopped(reason) => CallFailure::Stopped(reason),
                });
                answer.and_then(encode)
            }));
            return;
        }
        if let Some(incarnation) = actor.downcast_ref::<Incarnation<A>>() {
            if !call.expects_answer {
                return incarnation.do_send(message);
            }
            let name = context.downcast_mut::<Arc<str>>().cloned().unwrap_or_default();
            let answer = incarnation.send(name, message);
            call.outcome = CallOutcome::Later(Box::pin(async move {
                let answer = answer.await.map_err(|error| match error {
                    Error::ActorStopped { reason, .. } => CallFailure::Stopped(reason),
                    error => CallFailure::Failed(Failure::new(FailureKind::Result, error)),
                });
                answer.and_then(encode)
            }));
            return;
        }
        let (Some(actor), Some(context)) =
            (actor.downcast_mut::<A>(), context.downcast_mut::<A::Context>())
        else {
            let problem = format!("the actor is not a `{}`", type_name::<A>());
            return call.fail(FailureKind::Unknown, &problem);
        };
        if !call.expects_answer {
            return user_code(|| actor.handle(message, context)).handle(context, None);
        }
        call.outcome = handle(actor, context, message, encode);
    }
}

/// Passes a message to its handler, whose result is encoded by `encode`.
pub(crate) fn handle<A, M>(
    actor: &mut A,
    context: &mut A::Context,
    message: M,
    encode: impl FnOnce(M::Result) -> Encoded + 'static,
) -> CallOutcome
where
    A: Actor + Handler<M>,
    M: RemoteMessage,
{
    let (sender, mut answer) = oneshot::channel();
    user_code(|| actor.handle(message, context)).handle(context, Some(sender));
    match answer.try_recv() {
        Ok(value) => CallOutcome::Now(encode(value)),
        Err(TryRecvError::Closed) => CallOutcome::Now(Err(no_answer())),
        Err(TryRecvError::Empty) => CallOutcome::Later(Box::pin(async move {
            answer.await.map_err(|_| no_answer()).and_then(encode)
        })),
    }
}

impl MethodCall {
    /// Lets the method answer itself.
    pub(crate) fn open(&mut self) -> OpenCall {
        let responder = self.responder.take().expect("a method takes it once");
        OpenCall::new(Arc::clone(&self.running), responder)
    }

    pub(crate) fn fail(&mut self, kind: FailureKind, problem: &dyn std::fmt::Display) {
        self.outcome = CallOutcome::Now(Err(CallFailure::Failed(Failure::new(kind, problem))));
    }
}

fn no_answer() -> CallFailure {
    let problem = "the handler ended without an answer: its future panicked, or was dropped";
    CallFailure::Failed(Failure::new(FailureKind::Result, problem))
}

/// Encodes an answer of at most `limit` bytes.
pub(crate) fn encode<T: Serialize>(limit: usize, value: &T) -> Encoded {
    let failed = |error: Error| CallFailure::Failed(Failure::new(FailureKind::Result, error));
    let mut frame = answer_head();
    let blobs = transfer::once(|| codec::append_apart(&mut frame, value)).map_err(failed)?;
    let what = || format!("the answer of type `{}`", type_name::<T>());
    codec::check_size(frame.len() + blobs.total_len(), limit as u64, what).map_err(failed)?;
    Ok(AnswerFrame { frame, blobs })
}
