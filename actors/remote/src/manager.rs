//! Actors in other processes: each in one of its own, or several together.
//!
//! The process that owns a manager has a supervisor for it, whose only child is the actor's process
//! (`start`). Other managed actors may join that process, which is a `place` for them. The process
//! restarts an actor whose handler panics (`process`, `hosted`); the supervisor restarts the
//! process, and with it all that ran there. An address finds the current incarnation by asking the
//! owner.

mod builder;
mod group;
mod hosted;
mod last_snapshot;
mod lifecycle;
mod owned;
mod place;
mod placement;
mod process;
mod snapshot;
mod start;
mod wire;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use actix::{Actor, Context};
use fiber_core::ExitReason;
use fiber_values::{Function, Portable, assert_captures_nothing};
use tokio::sync::oneshot;

pub use self::builder::ManagerBuilder;
use self::owned::ManagedActor;
use self::place::Place;
pub(crate) use self::snapshot::SnapshotInterval;
pub use self::snapshot::{NoSnapshots, Snapshot, SnapshotPolicy, Snapshots};
use crate::remote::RemoteAddr;
pub use fiber_runtime::mesh::Full;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::supervisor::SupervisorRef;

/// A handle of an actor in another process, which fiber supervises.
///
/// A factory function makes the actor in that process, from arguments that travel there like those
/// of a task of a pool. The process is the actor's own, or it has [others](ManagerBuilder::within).
/// The [address](AsyncManager::addr) stays valid across restarts. Dropping the manager stops the
/// actor and its process.
///
/// - **A handler panics.** Its call fails with the panic's message, and the factory makes the actor
///   again, in the same process. Other calls that the actor was handling fail with
///   [`Error::ActorStopped`](fiber_core::Error::ActorStopped). Messages that wait in the mailbox go
///   to the new actor.
/// - **The process dies.** It is restarted, after a
///   [pause](fiber_supervisor::supervisor::Backoff) from the second time on. Pending calls, and
///   messages in the mailbox, fail with the reason, unless their address
///   [resends](RemoteAddr::resend) them.
/// - **State.** The new actor has the state that the factory gives it. An actor that implements
///   [`Snapshot`] continues from its last snapshot. With
///   [`durable`](ManagerBuilder::durable) snapshots, it also does so when the program itself is
///   started again.
/// - **The owner dies.** The process ends with its parent.
///
/// It derefs to the actor's [`RemoteAddr`], so that `send` and `do_send` work on it.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// struct Greeter {
///     greeting: String,
/// }
///
/// #[fiber::message(String)]
/// struct Greet(String);
///
/// impl Actor for Greeter {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::handlers]
/// impl Greeter {
///     fn greet(&mut self, greet: Greet) -> String {
///         format!("{}, {}!", self.greeting, greet.0)
///     }
/// }
///
/// let greeter = AsyncManager::start(|greeting| Greeter { greeting }, "Hello".to_string()).wait()?;
/// let reply = greeter.send(Greet("world".into()));
/// assert_eq!(reply.wait()?, "Hello, world!");
/// # Ok::<(), fiber::Error>(())
/// ```
///
/// The examples of the methods use the `Counter` of [`RemoteAddr`].
pub struct AsyncManager<A: Actor> {
    addr: RemoteAddr<A>,
    inner: Arc<ManagerInner>,
}

/// Controls a managed actor. Dropping it stops the actor.
struct ManagerInner {
    runtime: &'static Runtime,
    actor: Arc<ManagedActor>,
    /// The process in which the actor runs.
    place: Arc<Place>,
    /// The supervisor of the process, if the actor is the one for which it was started.
    supervisor: Option<SupervisorRef>,
}

/// The type of a handle's actors before the builder's `start` infers it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum UnspecifiedActor {}

impl Actor for UnspecifiedActor {
    type Context = Context<UnspecifiedActor>;
}

impl AsyncManager<UnspecifiedActor> {
    /// Returns a builder with the default options. [`ManagerBuilder`] has an example.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::new()
    }
}

impl<A: Actor> AsyncManager<A> {
    /// Starts a process in which `factory` makes the actor from `args`.
    ///
    /// `args` is one value, a tuple for a factory with several parameters, or `()`. The call
    /// returns at once; the reply is ready when the actor has started, which takes the start of a
    /// process. Dropping the reply before that ends the process.
    ///
    /// # Errors
    /// As [`ManagerBuilder::start`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 5).wait()?;
    /// assert_eq!(counter.send(Add(2)).wait()?, 7);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn start<F, Args, M>(factory: F, args: Args) -> Reply<AsyncManager<A>>
    where
        A: Actor<Context = Context<A>>,
        F: Function<Args, M, Output = A>,
        Args: Portable + 'static,
        M: 'static,
    {
        const { assert_captures_nothing::<F>() };
        AsyncManager::builder().start(factory, args)
    }

    /// Starts another managed actor in the process of this one: `factory` makes it from `args`.
    ///
    /// It is `AsyncManager::builder().within(self).start(factory, args)`:
    /// [`within`](ManagerBuilder::within) says what the actors share.
    ///
    /// # Errors
    /// As [`ManagerBuilder::start`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let first = fiber::AsyncManager::start(Counter, 1).wait()?;
    /// let second = first.spawn(Counter, 10).wait()?;
    /// assert_eq!(second.send(Add(1)).wait()?, 11);
    /// first.stop().wait()?;
    /// assert!(second.join().wait()?.is_normal());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, Args, M>(&self, factory: F, args: Args) -> Reply<AsyncManager<F::Output>>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
    {
        const { assert_captures_nothing::<F>() };
        AsyncManager::builder().within(self).start(factory, args)
    }

    /// Returns the actor's address, which can travel to other processes. It does not keep the actor
    /// alive.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// use fiber::{AsyncManager, Process, RemoteAddr};
    ///
    /// let counter = AsyncManager::start(Counter, 0).wait()?;
    /// let add = |counter: RemoteAddr<Counter>| counter.send(Add(1)).wait();
    /// let process = Process::builder().try_spawn(add, counter.addr());
    /// assert_eq!(process.wait()?, 1);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn addr(&self) -> RemoteAddr<A> {
        self.addr.clone()
    }

    /// Returns the actor's name, which errors and the [tree](fiber_supervisor::supervisor::tree())
    /// show.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let builder = fiber::AsyncManager::builder().name("visitors");
    /// assert_eq!(builder.start(Counter, 0).wait()?.name(), "visitors");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.inner.actor.owned.name
    }

    /// Returns the id of the actor's process, or `None` while it restarts and after the actor's end.
    /// [`stop`](AsyncManager::stop) has an example.
    ///
    /// Actors [within](ManagerBuilder::within) one process have the same.
    pub fn pid(&self) -> Option<u32> {
        self.inner.place.pid().filter(|_| !self.inner.actor.owned.is_gone())
    }

    /// Kills the actor's process (SIGKILL), without waiting, and with it all actors
    /// [within](ManagerBuilder::within) the process.
    ///
    /// The supervisor then restarts it, as after any death. Until the process is dead, it may
    /// handle and answer messages. Calls without an answer fail with
    /// [`Error::ActorStopped`](fiber_core::Error::ActorStopped), except those of an address with
    /// [`resend`](RemoteAddr::resend).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// counter.kill_process();
    /// // Without `resend` this call might fail.
    /// assert_eq!(counter.addr().resend().send(Add(1)).wait()?, 1);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn kill_process(&self) {
        self.inner.place.kill(ExitReason::Signal(9));
    }

    /// Stops the actor and then its process, for good. An actor that was started
    /// [within](ManagerBuilder::within) the process of others ends alone.
    ///
    /// The handler that runs at that moment finishes. The actor then ends as after
    /// [`Context::stop`](actix::ActorContext::stop): calls whose answers are pending futures, and
    /// messages in the mailbox, fail with [`Error::ActorStopped`](fiber_core::Error::ActorStopped).
    /// When the [shutdown deadline](ManagerBuilder::shutdown) passes before that, the process is
    /// killed. Other actors in the process stop before the one for which it was started. The reply
    /// is ready when the process is gone, or the actor that ends alone. It happens whether or not
    /// the reply is awaited.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// assert!(counter.pid().is_some_and(|pid| pid != std::process::id()));
    /// counter.stop().wait()?;
    /// assert_eq!(counter.pid(), None);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stop(&self) -> Reply<()> {
        let _ = self.inner.actor.wanted.set(ExitReason::Shutdown);
        let Some(supervisor) = self.inner.supervisor.clone() else {
            self.inner.place.stop(self.inner.actor.id());
            let ended = self.join();
            return Reply::new(async move { ended.await.map(drop) });
        };
        let (done, ended) = oneshot::channel();
        self.inner.runtime.spawn(move || async move { drop(done.send(supervisor.stop().await)) });
        Reply::new(async move { ended.await.unwrap_or(Ok(())) })
    }

    /// Waits until the actor has ended for good, and returns why.
    ///
    /// It does not stop the actor. A restart is not an end.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// drop(counter.stop());
    /// assert!(counter.join().wait()?.is_normal());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(&self) -> Reply<ExitReason> {
        self.addr.join()
    }
}

impl<A: Actor> Deref for AsyncManager<A> {
    type Target = RemoteAddr<A>;

    fn deref(&self) -> &RemoteAddr<A> {
        &self.addr
    }
}

impl<A: Actor> fmt::Debug for AsyncManager<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncManager")
            .field("name", &self.name())
            .field("pid", &self.pid())
            .finish()
    }
}

impl Drop for ManagerInner {
    fn drop(&mut self) {
        let _ = self.actor.wanted.set(ExitReason::Dropped);
        let Some(supervisor) = self.supervisor.clone() else {
            return self.place.stop(self.actor.id());
        };
        self.runtime.spawn(move || async move { drop(supervisor.stop().await) });
    }
}
