//! Actix actors as children.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, Arbiter, ArbiterHandle, AsyncContext, Context, System};
use fiber_core::{ExitReason, shortage};
use futures_core::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::actor_loop::{ActorCommand, Commands, Own, catch_panic, run_actor};
use super::child_ref::ChildRef;
use super::incarnation::{Current, ExitWatch, IncarnationGuard};
use super::spec::ChildSpec;
use super::start::{ChildContext, Control, Running, Start};
use super::tree::ChildKind;
use fiber_runtime::parts::Parts;
use fiber_runtime::tokio_runtime::new_runtime;

impl ChildSpec {
    /// Returns the specification of an actix actor. `factory` makes the actor of each incarnation,
    /// on the thread on which it then runs.
    ///
    /// All supervised actors share the thread `fiber-actors`, unless their specification [sets
    /// another](ChildSpec::on); it is not the supervisor's thread. A handler that blocks delays the
    /// other actors of its thread. The child counts as started when the actor's `started` has
    /// returned.
    ///
    /// A panic in a handler ends the incarnation. Messages in its mailbox are lost, and their calls
    /// fail.
    ///
    /// [`SupervisorBuilder::start`](super::SupervisorBuilder::start) has an example.
    pub fn actor<A>(name: impl Into<String>, factory: impl Fn() -> A + Send + 'static) -> ChildSpec
    where
        A: Actor<Context = Context<A>>,
    {
        let (factory, current) = (Arc::new(Mutex::new(factory)), Arc::new(Current::new()));
        ChildSpec::new(name, ActorStart { factory, current })
    }
}

struct ActorStart<A: Actor, F> {
    factory: Arc<Mutex<F>>,
    current: Arc<Current<A>>,
}

impl<A: Actor<Context = Context<A>>, F: Fn() -> A + Send + 'static> Start for ActorStart<A, F> {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        self.current.reopen();
        let (commands, inbox) = mpsc::unbounded_channel();
        let (started, ready) = oneshot::channel();
        let (exit, exited) = ExitWatch::channel();
        let (current, factory) = (self.current.clone(), self.factory.clone());
        let name: Arc<str> = child.path().into();
        let this = ChildRef::new(Arc::clone(&child.identity), Arc::clone(&self.current));
        let own = Arc::new(Own { name, addr: Some(Box::new(this)) });
        let arbiter = child.arbiter().cloned().map_or_else(shared_arbiter, Ok);
        Box::pin(async move {
            let arbiter = arbiter?;
            let own_arbiter = arbiter.clone();
            let spawned = arbiter.spawn_fn(move || {
                if inbox.is_closed() {
                    return;
                }
                fiber_core::spawn_local(async move {
                    let context = Context::<A>::new();
                    let guard =
                        IncarnationGuard::new(current, context.address(), own_arbiter, exit);
                    let reason = match catch_panic(|| (*factory.lock())()) {
                        Ok(actor) => {
                            let on_started = || {
                                guard.started();
                                let _ = started.send(());
                            };
                            let exit = || ExitReason::Normal;
                            let mut commands = Commands::new(inbox);
                            run_actor(&own, context, actor, &mut commands, on_started, exit).await
                        }
                        Err(reason) => reason,
                    };
                    guard.finish(reason);
                });
            });
            if !spawned {
                return Err(ExitReason::NotStarted("its arbiter has ended".into()));
            }
            running(commands, ready, exited).await
        })
    }

    fn kind(&self) -> ChildKind {
        ChildKind::Actor
    }

    fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.current.clone())
    }

    fn starts_on_shared_thread(&self) -> bool {
        true
    }

    fn ends_here(&self) -> bool {
        self.current.ends_here()
    }

    fn finished(&mut self, reason: &ExitReason) {
        // Callers do not wait for a failure of another child.
        self.current.remove(reason);
    }

    fn removed(&mut self, reason: &ExitReason) {
        self.current.remove(reason);
    }
}

/// Waits until an actor has started.
async fn running(
    commands: mpsc::UnboundedSender<ActorCommand>,
    ready: oneshot::Receiver<()>,
    exited: ExitWatch,
) -> Result<Running, ExitReason> {
    if ready.await.is_err() {
        let reason = exited.clone().reason().await;
        if reason != ExitReason::Normal {
            return Err(reason);
        }
    }
    Ok(Running::new(ActorControl(commands), exited.reason()))
}

/// If it is dropped, the actor ends.
struct ActorControl(mpsc::UnboundedSender<ActorCommand>);

impl Control for ActorControl {
    fn shutdown(&mut self) {
        // An actor without a receiver has ended.
        let _ = self.0.send(ActorCommand::Stop);
    }

    fn kill(&mut self, reason: ExitReason) {
        let _ = self.0.send(ActorCommand::Kill(reason));
    }
}

/// The arbiters that supervised actors of a session share, by the ids of their actix systems.
#[derive(Default)]
struct SharedArbiters(Mutex<HashMap<usize, ArbiterHandle>>);

thread_local! {
    /// The actix system whose supervised actors share this thread, if there is one.
    static SHARED_IN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns whether this is the thread that the supervised actors of an actix system share.
pub(super) fn is_shared_in(system: usize) -> bool {
    SHARED_IN.get() == Some(system)
}

/// Returns the arbiter that supervised actors of this thread's actix system share.
fn shared_arbiter() -> Result<ArbiterHandle, ExitReason> {
    let problem =
        |problem: String| ExitReason::NotStarted(format!("there is no thread for it: {problem}"));
    let system = System::try_current()
        .ok_or_else(|| problem("its supervisor's thread has no actix system".into()))?;
    let (parts, number) = (Parts::current(), system.id());
    let mut arbiters = parts.get::<SharedArbiters>().0.lock();
    arbiters.retain(|_, arbiter| arbiter.alive());
    if let Some(arbiter) = arbiters.get(&number) {
        return Ok(arbiter.clone());
    }
    let start = move || {
        // The thread works for this session only.
        std::mem::forget(parts.enter());
        SHARED_IN.set(Some(number));
        named_runtime()
    };
    let arbiter =
        Arbiter::try_with_tokio_rt(start).map_err(|error| problem(shortage::explain(&error)))?;
    arbiters.insert(number, arbiter.handle());
    Ok(arbiter.handle())
}

fn named_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    // The name only helps to read lists of threads.
    let _ = rustix::thread::set_name(c"fiber-actors");
    new_runtime()
}
