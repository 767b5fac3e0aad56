//! How a message that came as bytes is handled by an actor: an entry for each pair of actor and
//! message.

use std::any::{Any, type_name};
use std::marker::PhantomData;

use actix::dev::{MessageResponse, ToEnvelope};
use actix::{Actor, Addr, Handler};
use bytes::Bytes;
use fiber_core::entry::{Entry, MethodFn};
use fiber_core::{Error, ExitReason, Failure, FailureKind, codec, transfer};
use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::message::RemoteMessage;
use crate::mesh::{CallFailure, answer_head};

/// The entry through which other nodes have an `A` handle an `M`.
pub(super) fn method<A, M>() -> &'static Entry<MethodFn>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M> + 'static,
    M: RemoteMessage,
{
    Maker::<A, M>::ENTRY
}

/// A message that is being handled.
pub(super) struct Handling {
    pub(super) message: Bytes,
    /// Whether an answer is wanted.
    pub(super) wanted: bool,
    /// The longest answer.
    pub(super) limit: usize,
    pub(super) outcome: Outcome,
}

/// What came of it.
pub(super) enum Outcome {
    /// Nothing that anybody wants to know.
    None,
    Now(Encoded),
    Later(LocalBoxFuture<'static, Encoded>),
}

/// An answer as a frame without its call, or why there is none.
pub(super) type Encoded = Result<Vec<u8>, CallFailure>;

struct Maker<A, M>(PhantomData<(A, M)>);

impl<A, M> Maker<A, M>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M> + 'static,
    M: RemoteMessage,
{
    const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<M>, Self::handle);

    /// `actor` is the actor itself, beside its context, or its address.
    fn handle(actor: &mut dyn Any, context: &mut dyn Any, handling: &mut dyn Any) {
        let handling =
            handling.downcast_mut::<Handling>().expect("methods are called with nothing else");
        let message = match codec::decode::<M>(&handling.message) {
            Ok(message) => message,
            Err(error) => return handling.fail(FailureKind::Arguments, &error),
        };
        let limit = handling.limit;
        if let Some(addr) = actor.downcast_ref::<Addr<A>>() {
            if !handling.wanted {
                return addr.do_send(message);
            }
            // A new clone of an address has a place of its own in the mailbox, however full:
            // messages keep their order.
            let request = addr.clone().send(message);
            handling.outcome = Outcome::Later(Box::pin(async move {
                request
                    .await
                    .map_err(|_| CallFailure::Stopped(ended()))
                    .and_then(|value| encode(limit, &value))
            }));
            return;
        }
        let (Some(actor), Some(context)) =
            (actor.downcast_mut::<A>(), context.downcast_mut::<A::Context>())
        else {
            let problem = format!("it is no `{}`", type_name::<A>());
            return handling.fail(FailureKind::Unknown, &problem);
        };
        if !handling.wanted {
            return actor.handle(message, context).handle(context, None);
        }
        let (sender, mut answer) = oneshot::channel();
        actor.handle(message, context).handle(context, Some(sender));
        handling.outcome = match answer.try_recv() {
            Ok(value) => Outcome::Now(encode(limit, &value)),
            Err(TryRecvError::Closed) => Outcome::Now(Err(no_answer())),
            Err(TryRecvError::Empty) => Outcome::Later(Box::pin(async move {
                answer.await.map_err(|_| no_answer()).and_then(|value| encode(limit, &value))
            })),
        };
    }
}

impl Handling {
    fn fail(&mut self, kind: FailureKind, problem: &dyn std::fmt::Display) {
        self.outcome = Outcome::Now(Err(CallFailure::Failed(Failure::new(kind, problem))));
    }
}

/// Why an actor that is known by its [`Addr`] alone does not answer any more: actix does not tell.
pub(super) fn ended() -> ExitReason {
    ExitReason::Normal
}

fn no_answer() -> CallFailure {
    let problem = "the handler ended without an answer: its future panicked, or was dropped";
    CallFailure::Failed(Failure::new(FailureKind::Result, problem))
}

fn encode<T: Serialize>(limit: usize, value: &T) -> Encoded {
    let failed = |error: Error| CallFailure::Failed(Failure::new(FailureKind::Result, error));
    let mut frame = answer_head();
    transfer::once(|| codec::append(&mut frame, value)).map_err(failed)?;
    let what = || format!("the answer of type `{}`", type_name::<T>());
    codec::check_size(frame.len(), limit as u64, what).map_err(failed)?;
    Ok(frame)
}
