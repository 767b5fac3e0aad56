//! Actors in processes of their own.
//!
//! The owner has a supervisor for each manager, whose only child is the process ([`start`]). The
//! process hosts the actor under a supervisor of its own ([`host`]): a handler's panic restarts the
//! actor there, the process's death restarts the process. Whoever has the address finds the current
//! incarnation by asking the owner.

mod builder;
mod host;
mod snapshot;
mod start;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Context, Handler};
use fiber_core::{ExitReason, Function, Portable, Result, captures_nothing};
use tokio::sync::{oneshot, watch};

pub use self::builder::ManagerBuilder;
pub use self::snapshot::{Keep, NoSnapshots, Snapshot, Snapshots};
use self::start::Process;
use crate::remote::{Owned, RemoteAddr, RemoteMessage};
use crate::reply::Reply;
use crate::runtime::{Command, Runtime};
use crate::supervisor::SupervisorRef;

/// An actor in a process of its own, supervised: its owner, and its address.
///
/// The actor is made there by a function and its arguments, as in a [task](crate::Pool). If a
/// handler panics, that call fails with the panic's message and the actor is made anew; if the
/// process dies, it is started again. Actors that implement [`Snapshot`] go on from the last one.
/// The address ([`addr`]) stays valid throughout. Dropping the manager ends the actor and its
/// process.
///
/// [`addr`]: AsyncManager::addr
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
/// let pending = greeter.send(Greet("world".into())); // on its way
/// assert_eq!(pending.wait()?, "Hello, world!");
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct AsyncManager<A: Actor> {
    addr: RemoteAddr<A>,
    shared: Arc<Shared>,
}

/// An [`AsyncManager`] whose calls are each waited for.
///
/// # Errors
/// Its calls fail as [`Call::wait`](crate::Call::wait) does.
pub struct SyncManager<A: Actor>(AsyncManager<A>);

struct Shared {
    runtime: &'static Runtime,
    name: String,
    owned: Arc<Owned>,
    supervisor: SupervisorRef,
    process: watch::Receiver<Option<Process>>,
}

impl<A: Actor> AsyncManager<A> {
    /// A manager to be.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::new()
    }

    /// Starts a process in which `factory` makes the actor from `args`: one value, or a tuple for a
    /// function of several.
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
        const { captures_nothing::<F>() };
        AsyncManager::<A>::builder().start(factory, args)
    }

    /// The actor's address, which can travel.
    pub fn addr(&self) -> RemoteAddr<A> {
        self.addr.clone()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The id of the current process; `None` while it is being restarted, and when it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.shared.process.borrow().as_ref().map(|process| process.pid)
    }

    /// Kills the current process (SIGKILL). It is restarted.
    pub fn kill(&self) {
        if let Some(process) = &*self.shared.process.borrow() {
            let _ = process.commands.send(Command::Kill(ExitReason::Signal(9)));
        }
    }

    /// Ends the actor when it has done what it has begun, and then its process; kills it when its
    /// [deadline](ManagerBuilder::shutdown) has passed. The reply comes when the process is gone.
    pub fn stop(&self) -> Reply<()> {
        let supervisor = self.shared.supervisor.clone();
        let (done, ended) = oneshot::channel();
        self.shared
            .runtime
            .spawn(move || async move { drop(done.send(supervisor.shutdown().await)) });
        Reply::new(async move { ended.await.unwrap_or(Ok(())) })
    }
}

/// All that an address can do.
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
    /// As [`AsyncManager::start`], and waits until the actor is there.
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
        const { captures_nothing::<F>() };
        AsyncManager::start(factory, args).wait().map(SyncManager)
    }

    /// Sends a message and waits for the answer.
    ///
    /// # Errors
    /// As [`Call::wait`](crate::Call::wait).
    pub fn send<M>(&self, message: M) -> Result<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.0.send(message).wait()
    }

    /// The actor's address, which can travel.
    pub fn addr(&self) -> RemoteAddr<A> {
        self.0.addr()
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

impl Drop for Shared {
    fn drop(&mut self) {
        let supervisor = self.supervisor.clone();
        self.runtime.spawn(move || async move { drop(supervisor.shutdown().await) });
    }
}
