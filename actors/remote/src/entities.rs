//! Actors by key: each is there when it gets a message, and sleeps when it gets none.
//!
//! - The `coordinator`, in the process that owns the entities, decides which process keeps which
//!   keys, and has their `records` and `reminders`.
//! - A `keeper` is the actor of each process of entities. It starts the entity of a key (`life`)
//!   with its first message, and saves it when it ends or moves.
//! - A `client`, in each process that sends messages, knows the table of the keys, and keeps the
//!   messages of a key in order while the key moves.

mod addr;
mod builder;
mod client;
mod coordinator;
mod inspection;
mod keeper;
mod life;
mod method;
mod owner;
mod records;
mod reminders;
mod state;
mod termination;
mod wire;
mod writes;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use actix::{Actor, Context};
use fiber_core::{Error, Result};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use tokio::sync::oneshot;

pub use self::addr::{EntitiesAddr, Entity, find_entities, this};
pub use self::builder::EntitiesBuilder;
use self::owner::Owner;
#[doc(hidden)]
pub use self::reminders::Fire;
pub use self::reminders::{NoReminders, Reminder, ReminderPolicy, WithReminders};
#[doc(hidden)]
pub use self::state::Kept;
pub use self::state::{
    EntityState, EventSourced, Events, EventsAndSnapshots, KeepsState, RecordedEvent,
};
use crate::manager::UnspecifiedActor;

/// Actors of one type, one for each key, in processes of their own.
///
/// The entity of a key is started by its first message, in the process to which the key belongs,
/// and sleeps after some time without one. There is one live entity of a key at most.
///
/// - **State.** By default, an entity that starts has the state that the factory gives it.
///   [`snapshots`](EntitiesBuilder::snapshots) and [`events`](EntitiesBuilder::events) keep its
///   state while it sleeps, moves, or its process dies, and
///   [`durable`](EntitiesBuilder::durable) beyond the end of the program.
/// - **Moves.** [`scale`](Entities::scale) starts or stops processes. Only the keys that have to
///   move do so, with their state. No message is lost, and those of one process to one key stay in
///   order.
/// - **Panics.** The call fails with the panic's message. The next message starts the entity again,
///   with the state that was kept.
/// - **Deaths.** A process that dies is started again. Calls without an answer fail with
///   [`Error::ActorStopped`], but for addresses that [resend](Entity::resend). At SIGTERM, as on a
///   drained machine, a process is replaced as if it were stopped: no message is lost.
/// - **The end.** [`stop`](Entities::stop), or dropping this, saves all entities and ends their
///   processes.
///
/// It derefs to [`EntitiesAddr`], which travels.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("doc/counter.md")]
/// use fiber::Process;
/// use fiber::entities::{Entities, Entity};
///
/// let users = Entities::builder("users").processes(2);
/// let users = users.start(|_name: String, start: u64| Counter(start), 10).wait()?;
/// assert_eq!(users.of("anna").send(Add(5)).wait()?, 15);
/// assert_eq!(users.of("bert").send(Add(1)).wait()?, 11);
///
/// let add = |user: Entity<Counter>| user.send(Add(1)).wait();
/// assert_eq!(Process::builder().try_spawn(add, users.of("anna")).wait()?, 16);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Entities<A: Actor<Context = Context<A>>> {
    addr: EntitiesAddr<A>,
    owner: Arc<Owner<A>>,
}

impl Entities<UnspecifiedActor> {
    /// Returns a builder with the default options. The name is known in the whole session: actors
    /// and other entities have other ones. [`Entities`] has an example.
    pub fn builder(name: impl Into<String>) -> EntitiesBuilder {
        EntitiesBuilder::new(name.into())
    }
}

impl<A: Actor<Context = Context<A>>> Entities<A> {
    /// Returns the address, which travels. [`EntitiesAddr`] has an example.
    pub fn addr(&self) -> EntitiesAddr<A> {
        self.addr.clone()
    }

    /// Starts or stops processes until there are so many. The keys that belong to other processes
    /// then move there: entities without messages at once, others when they have answered theirs.
    /// Messages to a key that moves wait.
    ///
    /// A process that is stopped gets `shutdown_timeout` of the
    /// [configuration](fiber_core::Config) for entities that are busy. An entity that sends a
    /// message to its own key, and waits for the answer, is busy until then.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0; [`Error::Start`] if a process can't start: those that were there
    /// go on.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/account.md")]
    /// let accounts = fiber::Entities::builder("scaled").processes(1).events();
    /// let accounts = accounts.start(|_: String, ()| Account::default(), ()).wait()?;
    /// let deposit = |user: u32| accounts.of(user).send(Deposit(1));
    /// for user in 0..20 {
    ///     deposit(user).wait()?;
    /// }
    /// accounts.scale(3).wait()?;
    /// assert_eq!(accounts.processes().wait()?, 3);
    /// for user in 0..20 {
    ///     assert_eq!(deposit(user).wait()?, 2);
    /// }
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn scale(&self, processes: usize) -> Reply<()> {
        if processes == 0 {
            let problem = "entities need at least 1 process; `stop` ends all of them";
            return Reply::failed(Error::invalid("Entities::scale", problem));
        }
        if let Err(error) = Runtime::check_processes("Entities::scale", processes) {
            return Reply::failed(error);
        }
        self.run(move |owner| async move { owner.scale(processes).await })
    }

    /// Returns the number of processes. [`scale`](Entities::scale) has an example.
    pub fn processes(&self) -> Reply<usize> {
        self.run(|owner| async move { Ok(owner.count().await) })
    }

    /// Kills the processes (SIGKILL), without waiting; they start again. It serves tests of what is
    /// kept. [`EventSourced`] has an example.
    pub fn kill_processes(&self) {
        drop(self.run(|owner| async move {
            owner.kill().await;
            Ok(())
        }));
    }

    /// Saves all entities, and ends their processes. The reply is ready when they are gone. It
    /// happens whether or not the reply is awaited. Later messages fail with
    /// [`Error::ActorStopped`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let users = fiber::Entities::builder("stopped").processes(1);
    /// let users = users.start(|_: String, ()| Counter(0), ()).wait()?;
    /// users.stop().wait()?;
    /// assert!(users.of("anna").send(Add(1)).wait().is_err());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stop(&self) -> Reply<()> {
        self.run(|owner| async move {
            owner.stop().await;
            Ok(())
        })
    }

    /// Runs a future on fiber's own thread.
    fn run<T: Send + 'static, W: Future<Output = Result<T>> + 'static>(
        &self,
        work: impl FnOnce(Arc<Owner<A>>) -> W + Send + 'static,
    ) -> Reply<T> {
        let (done, outcome) = oneshot::channel();
        let owner = Arc::clone(&self.owner);
        self.owner.runtime.spawn(move || async move { drop(done.send(work(owner).await)) });
        let ended = |_| Error::system("changing entities failed", "fiber's thread ended");
        Reply::new(async move { outcome.await.map_err(ended)? })
    }
}

impl<A: Actor<Context = Context<A>>> Deref for Entities<A> {
    type Target = EntitiesAddr<A>;

    fn deref(&self) -> &EntitiesAddr<A> {
        &self.addr
    }
}

impl<A: Actor<Context = Context<A>>> fmt::Debug for Entities<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entities({})", self.addr.name())
    }
}

impl<A: Actor<Context = Context<A>>> Drop for Entities<A> {
    fn drop(&mut self) {
        drop(self.stop());
    }
}
