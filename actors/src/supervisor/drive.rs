//! Runs an actor's context, with its panics caught.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use actix::dev::ContextFut;
use actix::{Actor, ActorContext, Context};
use fiber_core::{ExitReason, panics};
use futures_core::future::LocalBoxFuture;
use tokio::sync::mpsc;

/// What a supervisor tells an actor.
#[derive(Debug)]
pub(super) enum Order {
    Stop,
    Kill(ExitReason),
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The supervised actor whose code this thread runs, if it does.
pub(crate) fn current_actor() -> Option<Arc<str>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `actor` until it ends, and drops it. `first` is called when its `started` has been run.
pub(super) async fn drive<A: Actor<Context = Context<A>>>(
    name: Arc<str>,
    context: Context<A>,
    actor: A,
    mut orders: mpsc::UnboundedReceiver<Order>,
    first: impl FnOnce(),
    ended: impl FnOnce() -> ExitReason,
) -> ExitReason {
    let mut run = Some(context.into_future(actor));
    let mut first = Some(first);
    let mut by_itself = Some(ended);
    let mut told = false;
    poll_fn(move |task| {
        let future = run.as_mut().expect("a finished actor is not polled again");
        let end = match obey(&mut orders, future, &mut told, task) {
            Some(reason) => reason,
            None => match acting(&name, || Pin::new(&mut *future).poll(task)) {
                Err(reason) => reason,
                Ok(Poll::Ready(())) if told => ExitReason::Shutdown,
                Ok(Poll::Ready(())) => by_itself.take().map_or(ExitReason::Normal, |ended| ended()),
                Ok(Poll::Pending) => {
                    if let Some(first) = first.take() {
                        first();
                    }
                    return Poll::Pending;
                }
            },
        };
        drop_quietly(run.take());
        Poll::Ready(end)
    })
    .await
}

/// Runs an actor's code; its panic becomes a reason.
fn acting<T>(name: &Arc<str>, body: impl FnOnce() -> T) -> Result<T, ExitReason> {
    let outer = CURRENT.replace(Some(Arc::clone(name)));
    let result = caught(body);
    CURRENT.set(outer);
    result
}

/// Follows the orders that have come. `Some` if the actor must end at once.
fn obey<A: Actor<Context = Context<A>>>(
    orders: &mut mpsc::UnboundedReceiver<Order>,
    future: &mut ContextFut<A, Context<A>>,
    told: &mut bool,
    task: &mut TaskContext<'_>,
) -> Option<ExitReason> {
    while let Poll::Ready(order) = orders.poll_recv(task) {
        match order {
            Some(Order::Stop) => {
                *told = true;
                future.ctx().stop();
            }
            Some(Order::Kill(reason)) => return Some(reason),
            // Its supervisor is gone.
            None => return Some(ExitReason::Shutdown),
        }
    }
    None
}

/// Drops an actor. Its context would run more of its code (`stopping`, even handlers) if it were
/// not told that all is over: not what is wanted after a panic or a kill.
fn drop_quietly<A: Actor<Context = Context<A>>>(future: Option<ContextFut<A, Context<A>>>) {
    let dropped = caught(move || {
        if let Some(mut future) = future {
            future.ctx().terminate();
            drop(future);
        }
    });
    if let Err(reason) = dropped {
        tracing::error!(
            "an actor of type `{}` {reason} while it was dropped",
            std::any::type_name::<A>()
        );
    }
}

/// Runs foreign code; its panic becomes a reason.
pub(super) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, ExitReason> {
    panics::catch(|| catch_unwind(AssertUnwindSafe(body))).map_err(|panic| {
        // A reason is a line; the backtrace that someone asked for comes out here.
        panic.print_backtrace();
        ExitReason::Panicked(panic.message)
    })
}

/// Awaits a foreign future; its panic becomes a reason.
pub(super) async fn guarded<T>(future: LocalBoxFuture<'_, T>) -> Result<T, ExitReason> {
    let mut future = future;
    poll_fn(move |task| match caught(|| future.as_mut().poll(task)) {
        Ok(poll) => poll.map(Ok),
        Err(reason) => Poll::Ready(Err(reason)),
    })
    .await
}
