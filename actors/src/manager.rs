//! Actors in processes of their own.
//!
//! The process that owns a manager has a supervisor for it, whose only child is the actor's process
//! ([`start`]). That process runs the actor under a supervisor of its own ([`process`]). A
//! handler's panic restarts the actor there; the process's death restarts the process. An address
//! finds the current incarnation by asking the owner.

mod builder;
mod lifecycle;
mod process;
mod snapshot;
mod start;
mod wire;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Context, Handler};
use fiber_core::{ExitReason, Function, Portable, Result, assert_captures_nothing};
use tokio::sync::{oneshot, watch};

pub use self::builder::ManagerBuilder;
pub use self::snapshot::{NoSnapshots, Snapshot, SnapshotPolicy, Snapshots};
use self::start::CurrentProcess;
use crate::mesh::OwnedActor;
use crate::remote::{RemoteAddr, RemoteMessage};
use crate::reply::Reply;
use crate::runtime::{ProcessCommand, Runtime};
use crate::supervisor::SupervisorRef;

/// A handle of an actor in a process of its own, which fiber supervises.
///
/// A factory function makes the actor in that process, from arguments that travel there like those
/// of a [task](crate::Pool). If a handler panics, its call fails with the panic's message and the
/// factory makes the actor again. If the process dies, it is restarted. Actors that implement
/// [`Snapshot`] continue from their last snapshot. The [address](AsyncManager::addr) stays valid
/// across restarts. Dropping the manager stops the actor and its process.
///
/// It derefs to the actor's [`RemoteAddr`], so that `send` and `do_send` work on it.
///
/// # Examples
/// ```
/// # fiber::init();
/// use actix::prelude::*;
/// use fiber::AsyncManager;
/// use serde::{Deserialize, Serialize};
///
/// struct Greeter {
///     greeting: String,
/// }
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[rtype(result = "String")]
/// struct Greet(String);
///
/// impl Actor for Greeter {
///     type Context = Context<Self>;
/// }
///
/// impl Handler<Greet> for Greeter {
///     type Result = String;
///
///     fn handle(&mut self, greet: Greet, _: &mut Context<Self>) -> String {
///         format!("{}, {}!", self.greeting, greet.0)
///     }
/// }
///
/// let greeter = AsyncManager::start(|greeting| Greeter { greeting }, "Hello".to_string()).wait()?;
/// let reply = greeter.send(Greet("world".into()));
/// assert_eq!(reply.wait()?, "Hello, world!");
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct AsyncManager<A: Actor> {
    addr: RemoteAddr<A>,
    inner: Arc<ManagerInner>,
}

/// An [`AsyncManager`] whose methods block until their answer is there.
///
/// # Examples
/// ```
/// # fiber::init();
/// use actix::prelude::*;
/// use fiber::SyncManager;
/// use serde::{Deserialize, Serialize};
///
/// struct Counter(u64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[rtype(result = "u64")]
/// struct Add(u64);
///
/// impl Handler<Add> for Counter {
///     type Result = u64;
///
///     fn handle(&mut self, add: Add, _: &mut Context<Self>) -> u64 {
///         self.0 += add.0;
///         self.0
///     }
/// }
///
/// let counter = SyncManager::start(Counter, 5)?;
/// assert_eq!(counter.send(Add(2))?, 7);
/// counter.stop()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct SyncManager<A: Actor>(AsyncManager<A>);

/// Controls the process of a managed actor. Dropping it stops the actor.
struct ManagerInner {
    runtime: &'static Runtime,
    name: String,
    owned: Arc<OwnedActor>,
    supervisor: SupervisorRef,
    process: watch::Receiver<Option<CurrentProcess>>,
}

impl<A: Actor> AsyncManager<A> {
    /// Returns a builder with the default options.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::new()
    }

    /// Starts a process in which `factory` makes the actor from `args`.
    ///
    /// `args` is one value, a tuple for a factory with several parameters, or `()`. The reply is
    /// ready when the actor has started.
    ///
    /// # Errors
    /// As [`ManagerBuilder::start`].
    pub fn start<F, Args, M>(factory: F, args: Args) -> Reply<AsyncManager<A>>
    where
        A: Actor<Context = Context<A>>,
        F: Function<Args, M, Output = A>,
        Args: Portable + 'static,
        M: 'static,
    {
        const { assert_captures_nothing::<F>() };
        AsyncManager::<A>::builder().start(factory, args)
    }

    /// Returns the actor's address, which can travel to other processes.
    pub fn addr(&self) -> RemoteAddr<A> {
        self.addr.clone()
    }

    /// Returns the actor's name, which errors and the [tree](crate::tree) show.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the id of the actor's process, or `None` while it restarts and after its end.
    pub fn pid(&self) -> Option<u32> {
        self.inner.process.borrow().as_ref().map(|process| process.pid)
    }

    /// Kills the actor's process (SIGKILL), without waiting.
    ///
    /// The supervisor then restarts it, as after any death. Calls without an answer fail with
    /// [`Error::ActorStopped`](fiber_core::Error::ActorStopped), except those of an address with
    /// [`resend`](RemoteAddr::resend).
    pub fn kill_process(&self) {
        if let Some(process) = &*self.inner.process.borrow() {
            let _ = process.commands.send(ProcessCommand::Kill(ExitReason::Signal(9)));
        }
    }

    /// Stops the actor and then its process, for good.
    ///
    /// The actor first finishes the messages that it has begun. When its
    /// [shutdown deadline](ManagerBuilder::shutdown) passes before that, the process is killed. The
    /// reply is ready when the process is gone. It happens whether or not the reply is awaited.
    pub fn stop(&self) -> Reply<()> {
        let supervisor = self.inner.supervisor.clone();
        let (done, ended) = oneshot::channel();
        self.inner.runtime.spawn(move || async move { drop(done.send(supervisor.stop().await)) });
        Reply::new(async move { ended.await.unwrap_or(Ok(())) })
    }

    /// Waits until the actor has ended for good, and returns why.
    ///
    /// It does not stop the actor. A restart is not an end.
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

impl<A: Actor> SyncManager<A> {
    /// Starts a process in which `factory` makes the actor from `args`, and waits until the actor
    /// has started.
    ///
    /// # Errors
    /// As [`ManagerBuilder::start`].
    pub fn start<F, Args, M>(factory: F, args: Args) -> Result<SyncManager<A>>
    where
        A: Actor<Context = Context<A>>,
        F: Function<Args, M, Output = A>,
        Args: Portable + 'static,
        M: 'static,
    {
        const { assert_captures_nothing::<F>() };
        AsyncManager::start(factory, args).wait().map(SyncManager)
    }

    /// Sends a message to the actor and waits for the answer.
    ///
    /// # Errors
    /// As [`RemoteAddr::send`].
    pub fn send<M>(&self, message: M) -> Result<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.0.send(message).wait()
    }

    /// Returns the actor's address, which can travel to other processes.
    pub fn addr(&self) -> RemoteAddr<A> {
        self.0.addr()
    }

    /// Returns the actor's name, which errors and the [tree](crate::tree) show.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the id of the actor's process, or `None` while it restarts and after its end.
    pub fn pid(&self) -> Option<u32> {
        self.0.pid()
    }

    /// Kills the actor's process (SIGKILL), as [`AsyncManager::kill_process`].
    pub fn kill_process(&self) {
        self.0.kill_process();
    }

    /// Stops the actor and its process, and waits until the process is gone.
    ///
    /// # Errors
    /// As the reply of [`AsyncManager::stop`].
    pub fn stop(&self) -> Result<()> {
        self.0.stop().wait()
    }

    /// Waits until the actor has ended for good, and returns why. It does not stop the actor.
    ///
    /// # Errors
    /// As the reply of [`AsyncManager::join`].
    pub fn join(&self) -> Result<ExitReason> {
        self.0.join().wait()
    }
}

impl<A: Actor> From<AsyncManager<A>> for SyncManager<A> {
    fn from(manager: AsyncManager<A>) -> SyncManager<A> {
        SyncManager(manager)
    }
}

impl<A: Actor> fmt::Debug for SyncManager<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Drop for ManagerInner {
    fn drop(&mut self) {
        let supervisor = self.supervisor.clone();
        self.runtime.spawn(move || async move { drop(supervisor.stop().await) });
    }
}
