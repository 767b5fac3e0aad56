//! Runs an actor to its end, and catches its panics.

use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use actix::dev::ContextFut;
use actix::{Actor, ActorContext, Context};
use fiber_core::stacks::user_code;
use fiber_core::{ExitReason, panics};
use fiber_runtime::runtime::report_panic;
use futures_core::future::LocalBoxFuture;
use tokio::sync::mpsc;

/// A command of a supervisor to an actor.
#[derive(Debug)]
pub enum ActorCommand {
    /// Asks it to end in order.
    Stop,
    /// Ends it at once, for this reason.
    Kill(ExitReason),
}

/// The commands to an actor.
pub(super) struct Commands {
    pub(super) inbox: mpsc::UnboundedReceiver<ActorCommand>,
    /// Why the actor is to end, once a command says so.
    pub(super) end: Option<ExitReason>,
}

impl Commands {
    pub(super) fn new(inbox: mpsc::UnboundedReceiver<ActorCommand>) -> Commands {
        Commands { inbox, end: None }
    }

    /// Waits until the actor is to end, and returns why.
    pub(super) async fn end(&mut self) -> ExitReason {
        match self.inbox.recv().await {
            Some(ActorCommand::Kill(reason)) => reason,
            Some(ActorCommand::Stop) | None => ExitReason::Shutdown,
        }
    }
}

/// A supervised actor, as its own code sees it.
pub(super) struct Own {
    pub(super) name: Arc<str>,
    /// The address by which it knows itself, if it is no supervisor: a
    /// [`ChildRef`](super::ChildRef), or one for other processes.
    pub(super) addr: Option<Box<dyn Any + Send + Sync>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Own>>> = const { RefCell::new(None) };
}

fn current<T>(look: impl FnOnce(&Own) -> Option<T>) -> Option<T> {
    // A thread that ends may have lost it.
    CURRENT.try_with(|current| look(current.borrow().as_deref()?)).ok().flatten()
}

/// Returns the name of the supervised actor whose code runs on this thread, if there is one.
pub fn current_actor() -> Option<Arc<str>> {
    current(|own| Some(Arc::clone(&own.name)))
}

/// Returns the address of the supervised actor whose code runs on this thread, if it is of this type.
pub fn own_addr<T: Clone + 'static>() -> Option<T> {
    current(|own| own.addr.as_ref()?.downcast_ref().cloned())
}

/// Runs `actor` until it ends, and drops it. Calls `on_started` when its `started` has returned,
/// and `exit` for the reason of an end that the supervisor did not ask for.
pub(super) fn run_actor<A: Actor<Context = Context<A>>>(
    own: &Arc<Own>,
    context: Context<A>,
    actor: A,
    commands: &mut Commands,
    on_started: impl FnOnce(),
    exit: impl FnOnce() -> ExitReason,
) -> impl Future<Output = ExitReason> {
    let mut run = Some(context.into_future(actor));
    let mut on_started = Some(on_started);
    let mut exit = Some(exit);
    poll_fn(move |task| {
        let future = run.as_mut().expect("a finished actor is not polled again");
        let reason = match handle_commands(commands, future, task) {
            Some(reason) => reason,
            None => match run_as(own, || user_code(|| Pin::new(&mut *future).poll(task))) {
                Err(reason) => reason,
                Ok(Poll::Ready(())) if commands.end.is_some() => ExitReason::Shutdown,
                Ok(Poll::Ready(())) => exit.take().map_or(ExitReason::Normal, |exit| exit()),
                Ok(Poll::Pending) => {
                    if let Some(on_started) = on_started.take() {
                        on_started();
                    }
                    return Poll::Pending;
                }
            },
        };
        drop_quietly(run.take());
        Poll::Ready(reason)
    })
}

/// Runs code of an actor, and returns a panic as the reason.
fn run_as<T>(own: &Arc<Own>, body: impl FnOnce() -> T) -> Result<T, ExitReason> {
    let outer = CURRENT.replace(Some(Arc::clone(own)));
    let result = catch_panic(body);
    CURRENT.set(outer);
    result
}

/// Handles the commands that have come. Returns `Some` if the actor must end at once.
fn handle_commands<A: Actor<Context = Context<A>>>(
    commands: &mut Commands,
    future: &mut ContextFut<A, Context<A>>,
    task: &mut TaskContext<'_>,
) -> Option<ExitReason> {
    while let Poll::Ready(command) = commands.inbox.poll_recv(task) {
        match command {
            Some(ActorCommand::Stop) => {
                commands.end = Some(ExitReason::Shutdown);
                future.ctx().stop();
            }
            Some(ActorCommand::Kill(reason)) => {
                commands.end = Some(reason.clone());
                return Some(reason);
            }
            None => {
                // The supervisor is gone.
                commands.end = Some(ExitReason::Shutdown);
                return Some(ExitReason::Shutdown);
            }
        }
    }
    None
}

/// Drops an actor. A context that is not terminated first would run `stopping` and even handlers,
/// which must not happen after a panic or a kill.
fn drop_quietly<A: Actor<Context = Context<A>>>(future: Option<ContextFut<A, Context<A>>>) {
    let dropped = catch_panic(move || {
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

/// Runs a function, and returns a panic as the reason.
pub(super) fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, ExitReason> {
    panics::catch(body).map_err(|panic| ExitReason::Panicked(report_panic(panic).message))
}

/// Awaits a future, and returns a panic as the reason.
pub(super) async fn catch_panic_async<T>(
    mut future: LocalBoxFuture<'_, T>,
) -> Result<T, ExitReason> {
    poll_fn(move |task| match catch_panic(|| future.as_mut().poll(task)) {
        Ok(poll) => poll.map(Ok),
        Err(reason) => Poll::Ready(Err(reason)),
    })
    .await
}
