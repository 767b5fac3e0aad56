//! Pools of managed actors, which share messages.

mod addr;
mod broadcast;
mod builder;
mod reduce;
mod spawn;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::Actor;
use fiber_core::{Error, ExitReason, Result};
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

pub use self::addr::ActorPoolAddr;
pub use self::builder::ActorPoolBuilder;
use crate::manager::AsyncManager;
use crate::remote::RemoteAddr;
use fiber_runtime::reply::Reply;

/// The interval between two checks whether an actor that was removed has answered all calls.
const ANSWERED_CHECK: Duration = Duration::from_millis(5);

/// How an [`ActorPool`] chooses the actor that gets a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Routing {
    /// The actors take turns.
    #[default]
    RoundRobin,
    /// The actor with the fewest unanswered calls gets it. Each process counts those that it has
    /// sent through the pool or one of its addresses. Actors with equally many take turns.
    LeastLoaded,
}

/// Actors of one type, each in a process of its own, that share the messages sent to the pool.
///
/// Each actor has an [`AsyncManager`], and is restarted independently. Messages to an actor that
/// restarts wait for its next incarnation; they do not go to another actor. When an actor has ended
/// for good, the others get the messages; when all have, messages fail with
/// [`Error::ActorStopped`]. Dropping the pool stops all actors.
///
/// It derefs to its [`ActorPoolAddr`], so that `send` and `do_send` work on it. The
/// [address](ActorPool::addr) is cheap to clone, and works in every process of the program.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::actor_pool::Routing;
/// use fiber::prelude::*;
///
/// struct Squarer;
///
/// #[fiber::message(u64)]
/// struct Square(u64);
///
/// impl Actor for Squarer {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::handlers]
/// impl Squarer {
///     fn square(&mut self, square: Square) -> u64 {
///         square.0 * square.0
///     }
/// }
///
/// let pool = ActorPool::builder().routing(Routing::LeastLoaded);
/// let pool = pool.start(|_: u32| Squarer, 0..2).wait()?;
/// let replies: Vec<_> = (0..10).map(|x| pool.send(Square(x))).collect();
/// for (x, reply) in replies.into_iter().enumerate() {
///     assert_eq!(reply.wait()?, (x * x) as u64);
/// }
/// assert_eq!(pool.broadcast(Square(3)).all().wait()?, [9, 9]);
/// pool.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct ActorPool<A: Actor> {
    managers: Vec<AsyncManager<A>>,
    addr: ActorPoolAddr<A>,
    /// How many actors it has had so far.
    added: u64,
    resend: bool,
}

impl<A: Actor> ActorPool<A> {
    /// Returns the pool's address, which works in every process of the program.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// use fiber::Process;
    /// use fiber::actor_pool::{ActorPool, ActorPoolAddr};
    ///
    /// let pool = ActorPool::builder().start(Counter, [0, 0]).wait()?;
    /// let add = |counters: ActorPoolAddr<Counter>| counters.send_to("alice", Add(2)).wait();
    /// assert_eq!(Process::builder().try_spawn(add, pool.addr()).wait()?, 2);
    /// assert_eq!(pool.send_to("alice", Add(1)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn addr(&self) -> ActorPoolAddr<A> {
        self.addr.clone()
    }

    /// Adds an actor, which gets messages from now on through the pool's address and its clones in
    /// this process.
    ///
    /// Keys that belong to it move to it from the others; no other key moves. Addresses in other
    /// processes have the actors that the pool had when they were sent: [`addr`](ActorPool::addr)
    /// gives one with all.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// use fiber::{ActorPool, AsyncManager};
    ///
    /// let mut pool = ActorPool::builder().start(Counter, [0, 0]).wait()?;
    /// pool.add(AsyncManager::start(Counter, 0).wait()?);
    /// assert_eq!(pool.size(), 3);
    /// let first = pool.addrs().next().unwrap();
    /// pool.remove(&first)?.wait()?; // is ready when that actor has answered and stopped
    /// assert_eq!(pool.size(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn add(&mut self, manager: AsyncManager<A>) {
        let addr = match self.resend {
            true => manager.addr().resend(),
            false => manager.addr(),
        };
        self.addr.add(addr, self.added);
        self.added += 1;
        self.managers.push(manager);
    }

    /// Removes an actor, which gets no more messages through the pool's address and its clones in
    /// this process, and stops it. [`add`](ActorPool::add) has an example.
    ///
    /// Its keys move to the other actors. It stops when it has answered the calls that were sent
    /// through them, as by [`AsyncManager::stop`]; the reply is ready then. It happens whether or
    /// not the reply is awaited.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the pool has no such actor, or no other one.
    pub fn remove(&mut self, addr: &RemoteAddr<A>) -> Result<Reply<()>> {
        let invalid = |problem: &str| Error::invalid("ActorPool::remove", problem);
        let position = self.managers.iter().position(|manager| manager.addr() == *addr);
        let position = position.ok_or_else(|| invalid("the pool has no such actor"))?;
        if self.managers.len() == 1 {
            return Err(invalid("it is the pool's only actor: add another one, or stop the pool"));
        }
        let runtime = addr.untyped.runtime()?;
        let load = self.addr.remove(addr);
        let manager = self.managers.remove(position);
        let (done, stopped) = oneshot::channel();
        runtime.spawn(move || async move {
            while load.load(Ordering::Acquire) > 0 {
                tokio::time::sleep(ANSWERED_CHECK).await;
            }
            let _ = done.send(manager.stop().await);
        });
        let ended = |_| Err(Error::system("stopping an actor failed", "fiber's thread ended"));
        Ok(Reply::new(async move { stopped.await.unwrap_or_else(ended) }))
    }

    /// Returns the managers of all actors, in the order of their arguments and then of their
    /// [addition](ActorPool::add).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// # struct Idle;
    /// # impl Actor for Idle {
    /// #     type Context = Context<Self>;
    /// # }
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Idle, 0..2).wait()?;
    /// assert!(pool.managers().all(|manager| manager.pid().is_some()));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn managers(&self) -> impl ExactSizeIterator<Item = &AsyncManager<A>> {
        self.managers.iter()
    }

    /// Kills the processes of all actors (SIGKILL), without waiting. They are restarted. A message
    /// that is sent meanwhile may still be answered by an old process.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().resend().start(Counter, [0, 0]).wait()?;
    /// pool.kill_processes();
    /// pool.send(Add(1)).wait()?; // is sent again if its process dies before the answer
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn kill_processes(&self) {
        self.managers.iter().for_each(AsyncManager::kill_process);
    }

    /// Stops all actors and their processes, as [`AsyncManager::stop`].
    ///
    /// The actors stop at the same time; those that exceed
    /// [`ManagerBuilder::shutdown`](crate::manager::ManagerBuilder::shutdown) are killed. The reply
    /// is ready when all processes are gone. It happens whether or not the reply is awaited.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// # struct Idle;
    /// # impl Actor for Idle {
    /// #     type Context = Context<Self>;
    /// # }
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Idle, 0..2).wait()?;
    /// pool.stop().wait()?;
    /// assert!(pool.managers().all(|manager| manager.pid().is_none()));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stop(&self) -> Reply<()> {
        let stopping: Vec<_> = self.managers.iter().map(AsyncManager::stop).collect();
        Reply::new(async move { try_join_all(stopping).await.map(drop) })
    }

    /// Waits until all actors have ended for good, and returns why, in the actors' order.
    ///
    /// It does not stop them, and a restart is not an end: without a [`stop`](ActorPool::stop), it
    /// may wait for good.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// # struct Idle;
    /// # impl Actor for Idle {
    /// #     type Context = Context<Self>;
    /// # }
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Idle, 0..2).wait()?;
    /// let ended = pool.join();
    /// drop(pool.stop());
    /// assert!(ended.wait()?.iter().all(|reason| reason.is_normal()));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(&self) -> Reply<Vec<ExitReason>> {
        let ending: Vec<_> = self.managers.iter().map(AsyncManager::join).collect();
        Reply::new(try_join_all(ending))
    }
}

impl<A: Actor> Deref for ActorPool<A> {
    type Target = ActorPoolAddr<A>;

    fn deref(&self) -> &ActorPoolAddr<A> {
        &self.addr
    }
}

impl<A: Actor> fmt::Debug for ActorPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActorPool").field(&self.addr).finish()
    }
}
