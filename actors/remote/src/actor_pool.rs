//! Pools of managed actors, which share messages.

mod addr;
mod builder;
mod keys;

use std::fmt;
use std::ops::Deref;

use actix::Actor;
use fiber_core::ExitReason;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

pub use self::addr::ActorPoolAddr;
pub use self::builder::ActorPoolBuilder;
use crate::manager::AsyncManager;
use fiber_runtime::reply::Reply;

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
/// [`Error::ActorStopped`](fiber_core::Error::ActorStopped). Dropping the pool stops all actors.
///
/// It derefs to its [`ActorPoolAddr`], so that `send` and `do_send` work on it. The
/// [address](ActorPool::addr) is cheap to clone, and works in every process of the program.
///
/// # Examples
/// ```
/// # fiber::init();
/// use actix::prelude::*;
/// use fiber::{ActorPool, actor_pool::Routing};
/// use serde::{Deserialize, Serialize};
///
/// struct Squarer;
///
/// #[derive(Clone, Message, Serialize, Deserialize)]
/// #[rtype(result = "u64")]
/// struct Square(u64);
///
/// impl Actor for Squarer {
///     type Context = Context<Self>;
/// }
///
/// impl Handler<Square> for Squarer {
///     type Result = u64;
///
///     fn handle(&mut self, square: Square, _: &mut Context<Self>) -> u64 {
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
/// pool.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct ActorPool<A: Actor> {
    managers: Vec<AsyncManager<A>>,
    addr: ActorPoolAddr<A>,
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

    /// Returns the managers of all actors, in the order of their arguments.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use actix::prelude::*;
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
    /// # use actix::prelude::*;
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
    /// # use actix::prelude::*;
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
