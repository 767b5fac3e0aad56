//! Actix actors as children.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use actix::{Actor, Arbiter, ArbiterHandle, AsyncContext, Context, System};
use fiber_core::{ExitReason, shortage};
use futures_core::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::drive::{Order, caught, drive};
use super::slot::{Exit, Slot, Tenancy, exit_channel};
use super::spec::ChildSpec;
use super::start::{ChildContext, Control, Running, Start};
use super::tree::ChildKind;
use crate::tokio_runtime::new_runtime;

impl ChildSpec {
    /// An actix actor. Each incarnation is made by `factory`, on the thread on which it will run.
    ///
    /// That thread is never the supervisor's. All supervised actors share one, `fiber-actors`,
    /// unless told [otherwise](ChildSpec::on). The child counts as started when its `started` has
    /// returned.
    pub fn actor<A>(name: impl Into<String>, factory: impl Fn() -> A + Send + 'static) -> ChildSpec
    where
        A: Actor<Context = Context<A>>,
    {
        ChildSpec::actor_with(name, factory, Arc::new(()))
    }

    /// An actor in whose life something else takes part.
    pub(crate) fn actor_with<A>(
        name: impl Into<String>,
        factory: impl Fn() -> A + Send + 'static,
        lifecycle: Arc<dyn Lifecycle<A>>,
    ) -> ChildSpec
    where
        A: Actor<Context = Context<A>>,
    {
        ChildSpec::new(name, ActorStart::new(factory, lifecycle))
    }
}

struct ActorStart<A: Actor, F> {
    factory: Arc<Mutex<F>>,
    lifecycle: Arc<dyn Lifecycle<A>>,
    slot: Arc<Slot<A>>,
}

/// Takes part in the life of an actor.
pub(crate) trait Lifecycle<A: Actor>: Send + Sync + 'static {
    /// An incarnation is about to start in this context.
    fn begins(&self, context: &mut Context<A>)
    where
        A: Actor<Context = Context<A>>;

    /// It has ended.
    fn ended(&self, reason: &ExitReason);
}

/// Leaves it alone.
impl<A: Actor> Lifecycle<A> for () {
    fn begins(&self, _: &mut Context<A>)
    where
        A: Actor<Context = Context<A>>,
    {
    }

    fn ended(&self, _: &ExitReason) {}
}

impl<A: Actor<Context = Context<A>>, F: Fn() -> A + Send + 'static> ActorStart<A, F> {
    fn new(factory: F, lifecycle: Arc<dyn Lifecycle<A>>) -> ActorStart<A, F> {
        ActorStart {
            factory: Arc::new(Mutex::new(factory)),
            lifecycle,
            slot: Arc::new(Slot::new()),
        }
    }
}

impl<A: Actor<Context = Context<A>>, F: Fn() -> A + Send + 'static> Start for ActorStart<A, F> {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        self.slot.open();
        let (orders, inbox) = mpsc::unbounded_channel();
        let (started, ready) = oneshot::channel();
        let (exit, exited) = exit_channel();
        let (slot, factory, lifecycle) =
            (self.slot.clone(), self.factory.clone(), self.lifecycle.clone());
        let name: Arc<str> = child.path().into();
        let home = child.arbiter().cloned().map_or_else(shared_arbiter, Ok);
        Box::pin(async move {
            let home = home?;
            let place = home.clone();
            let sent = home.spawn_fn(move || {
                if inbox.is_closed() {
                    return;
                }
                actix::spawn(async move {
                    let mut context = Context::<A>::new();
                    let tenancy = Tenancy::new(slot, context.address(), place, exit);
                    lifecycle.begins(&mut context);
                    let end = match caught(|| (*factory.lock())()) {
                        Ok(actor) => {
                            let first = || {
                                tenancy.enter();
                                let _ = started.send(());
                            };
                            drive(name, context, actor, inbox, first, || ExitReason::Normal).await
                        }
                        Err(reason) => reason,
                    };
                    lifecycle.ended(&end);
                    tenancy.end(end);
                });
            });
            if !sent {
                return Err(ExitReason::NotStarted("its arbiter has ended".into()));
            }
            running(orders, ready, exited).await
        })
    }

    fn kind(&self) -> ChildKind {
        ChildKind::Actor
    }

    fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.slot.clone())
    }

    fn forgotten(&mut self, reason: &ExitReason) {
        self.slot.gone(reason);
    }
}

/// Waits until an actor has started.
async fn running(
    orders: mpsc::UnboundedSender<Order>,
    ready: oneshot::Receiver<()>,
    exited: Exit,
) -> Result<Running, ExitReason> {
    if ready.await.is_err() {
        let reason = exited.clone().reason().await;
        if reason != ExitReason::Normal {
            return Err(reason);
        }
    }
    Ok(Running::new(ActorControl(orders), exited.reason()))
}

/// Dropped, it ends the actor.
struct ActorControl(mpsc::UnboundedSender<Order>);

impl Control for ActorControl {
    fn shutdown(&mut self) {
        // An actor that takes no more orders has ended.
        let _ = self.0.send(Order::Stop);
    }

    fn kill(&mut self, reason: ExitReason) {
        let _ = self.0.send(Order::Kill(reason));
    }
}

/// The arbiter of all supervised actors of this thread's system, but for those that ask for
/// another.
fn shared_arbiter() -> Result<ArbiterHandle, ExitReason> {
    static ARBITERS: LazyLock<Mutex<HashMap<usize, ArbiterHandle>>> = LazyLock::new(Mutex::default);
    let problem =
        |problem: String| ExitReason::NotStarted(format!("there is no thread for it: {problem}"));
    let system = System::try_current()
        .ok_or_else(|| problem("its supervisor's thread has no actix system".into()))?;
    let mut arbiters = ARBITERS.lock();
    arbiters.retain(|_, arbiter| arbiter.alive());
    if let Some(arbiter) = arbiters.get(&system.id()) {
        return Ok(arbiter.clone());
    }
    let arbiter = Arbiter::try_with_tokio_rt(named_runtime)
        .map_err(|error| problem(shortage::explain(&error)))?;
    arbiters.insert(system.id(), arbiter.handle());
    Ok(arbiter.handle())
}

fn named_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    // Only a help for whoever looks at the process's threads.
    let _ = rustix::thread::set_name(c"fiber-actors");
    new_runtime()
}
