//! Pools of managed actors, which share messages.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::dev::ToEnvelope;
use actix::{Actor, Context, Handler};
use fiber_core::{Error, ExitReason, Function, Portable, assert_captures_nothing};
use futures_util::future::try_join_all;

use crate::manager::{AsyncManager, ManagerBuilder, NoSnapshots, SnapshotPolicy};
use crate::mesh::Load;
use crate::options::{builder_options, next_name};
use crate::remote::{RemoteAddr, RemoteMessage};
use crate::reply::Reply;

/// How an [`ActorPool`] chooses the actor that gets a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routing {
    /// The actors take turns.
    #[default]
    RoundRobin,
    /// The actor with the fewest unanswered calls of this pool gets it. Actors with equally many
    /// take turns.
    LeastLoaded,
}

/// Actors of one type, each in a process of its own, that share the messages sent to the pool.
///
/// Each actor has an [`AsyncManager`], and is restarted independently. Messages to an actor that
/// restarts wait for its next incarnation; they do not go to another actor. When an actor has ended
/// for good, the others get the messages; when all have, messages fail with
/// [`Error::ActorStopped`]. Dropping the pool stops all actors.
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
/// let pool = ActorPool::builder().routing(Routing::LeastLoaded).start(|_: u32| Squarer, 0..2).wait()?;
/// let replies: Vec<_> = (0..10).map(|x| pool.send(Square(x))).collect();
/// for (x, reply) in replies.into_iter().enumerate() {
///     assert_eq!(reply.wait()?, (x * x) as u64);
/// }
/// pool.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct ActorPool<A: Actor> {
    actors: Vec<PooledActor<A>>,
    routing: Routing,
    /// Counts the messages, for actors that take turns.
    turn: AtomicUsize,
}

struct PooledActor<A: Actor> {
    manager: AsyncManager<A>,
    addr: RemoteAddr<A>,
    /// The number of unanswered calls.
    load: Arc<AtomicUsize>,
}

/// A builder that configures and starts an [`ActorPool`]. [`ActorPool::builder`] returns one.
///
/// # Examples
/// ```
/// # fiber::init();
/// # use actix::prelude::*;
/// # struct Idle;
/// # impl Actor for Idle {
/// #     type Context = Context<Self>;
/// # }
/// use fiber::{ActorPool, actor_pool::Routing};
///
/// let builder = ActorPool::builder().name("idle").routing(Routing::LeastLoaded).resend();
/// let pool = builder.start(|_: u32| Idle, 0..2).wait()?;
/// assert_eq!(pool.managers().next().unwrap().name(), "idle-0");
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct ActorPoolBuilder<P = NoSnapshots> {
    manager: ManagerBuilder<P>,
    name: Option<String>,
    routing: Routing,
    resend: bool,
}

impl ActorPool<UnspecifiedActor> {
    /// Returns a builder with the default options.
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
    /// assert_eq!(pool.len(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn builder() -> ActorPoolBuilder {
        let manager = AsyncManager::<UnspecifiedActor>::builder();
        ActorPoolBuilder { manager, name: None, routing: Routing::default(), resend: false }
    }
}

/// The type of a pool's actors before [`ActorPoolBuilder::start`] infers it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum UnspecifiedActor {}

impl Actor for UnspecifiedActor {
    type Context = Context<UnspecifiedActor>;
}

impl<P> ActorPoolBuilder<P> {
    builder_options! {
        /// The actors have this name and a number, from 0. The default is `actors-1` and so on. The
        /// [example](ActorPoolBuilder#examples) shows it.
        name => name;
    }

    /// Sets how the pool chooses the actor that gets a message. The default is
    /// [`Routing::RoundRobin`]. The [example](ActorPoolBuilder#examples) shows it.
    pub fn routing(mut self, routing: Routing) -> ActorPoolBuilder<P> {
        self.routing = routing;
        self
    }

    /// Sends a call again if its actor's process dies before the answer: see
    /// [`RemoteAddr::resend`]. The [example](ActorPoolBuilder#examples) shows it.
    ///
    /// The call waits for the same actor's next process, and the actor may handle it twice.
    pub fn resend(mut self) -> ActorPoolBuilder<P> {
        self.resend = true;
        self
    }

    /// Sets the options of each actor: restarts, mailbox, resources, output, snapshots.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use actix::prelude::*;
    /// # struct Idle;
    /// # impl Actor for Idle {
    /// #     type Context = Context<Self>;
    /// # }
    /// use fiber::ActorPool;
    ///
    /// let pool = ActorPool::builder().manager(|manager| manager.mailbox(1000));
    /// assert_eq!(pool.start(|_: u32| Idle, 0..2).wait()?.len(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn manager<Q>(
        self,
        change: impl FnOnce(ManagerBuilder<P>) -> ManagerBuilder<Q>,
    ) -> ActorPoolBuilder<Q> {
        let ActorPoolBuilder { manager, name, routing, resend } = self;
        ActorPoolBuilder { manager: change(manager), name, routing, resend }
    }

    /// Starts one actor for each item of `args`, all at the same time.
    ///
    /// Each costs the start of a process. The reply is ready when all actors have started. If one
    /// of them cannot start, or the reply is dropped before it is ready, the others stop.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `args` has no items; otherwise as [`ManagerBuilder::start`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use actix::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// struct Greeter(String);
    ///
    /// impl Actor for Greeter {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[derive(Message, Serialize, Deserialize)]
    /// #[rtype(result = "String")]
    /// struct Greet;
    ///
    /// impl Handler<Greet> for Greeter {
    ///     type Result = String;
    ///
    ///     fn handle(&mut self, _: Greet, _: &mut Context<Self>) -> String {
    ///         format!("{}!", self.0)
    ///     }
    /// }
    ///
    /// let greetings = ["hello", "hola"].map(String::from);
    /// let pool = fiber::ActorPool::builder().start(Greeter, greetings).wait()?;
    /// assert_eq!(pool.send(Greet).wait()?, "hello!");
    /// assert_eq!(pool.send(Greet).wait()?, "hola!");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn start<F, Args, M>(
        self,
        factory: F,
        args: impl IntoIterator<Item = Args>,
    ) -> Reply<ActorPool<F::Output>>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        P: SnapshotPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        let name = self.name.unwrap_or_else(|| next_name("actors"));
        let mut starting = Vec::new();
        // A closure would hide the caller, whose place names the factory.
        for (number, args) in args.into_iter().enumerate() {
            starting
                .push(self.manager.clone().name(format!("{name}-{number}")).start(factory, args));
        }
        let (routing, resend) = (self.routing, self.resend);
        Reply::new(async move {
            if starting.is_empty() {
                let problem = "a pool needs arguments for at least 1 actor";
                return Err(Error::invalid("ActorPoolBuilder::start", problem));
            }
            let managers = try_join_all(starting).await?;
            let pooled = |manager: AsyncManager<F::Output>| {
                let addr = if resend { manager.addr().resend() } else { manager.addr() };
                PooledActor { manager, addr, load: Arc::default() }
            };
            let actors = managers.into_iter().map(pooled).collect();
            Ok(ActorPool { actors, routing, turn: AtomicUsize::new(0) })
        })
    }
}

impl<A: Actor> ActorPool<A> {
    /// Returns the number of actors, those that have ended included. The example of
    /// [`builder`](ActorPool::builder) shows it.
    pub fn len(&self) -> usize {
        self.actors.len()
    }

    /// Returns `false`: a pool has at least one actor. It stands beside [`len`](ActorPool::len), as
    /// in collections.
    pub fn is_empty(&self) -> bool {
        self.actors.is_empty()
    }

    /// Returns the addresses of all actors, in the order of their arguments.
    ///
    /// An address works in every process of the program. [`Routing::LeastLoaded`] does not count
    /// calls that go through it.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use actix::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # struct Squarer;
    /// # impl Actor for Squarer {
    /// #     type Context = Context<Self>;
    /// # }
    /// # #[derive(Clone, Message, Serialize, Deserialize)]
    /// # #[rtype(result = "u64")]
    /// # struct Square(u64);
    /// # impl Handler<Square> for Squarer {
    /// #     type Result = u64;
    /// #     fn handle(&mut self, square: Square, _: &mut Context<Self>) -> u64 {
    /// #         square.0 * square.0
    /// #     }
    /// # }
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Squarer, 0..2).wait()?;
    /// let second = pool.addrs().remove(1);
    /// assert_eq!(second.send(Square(3)).wait()?, 9);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn addrs(&self) -> Vec<RemoteAddr<A>> {
        self.actors.iter().map(|actor| actor.addr.clone()).collect()
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
    pub fn managers(&self) -> impl Iterator<Item = &AsyncManager<A>> {
        self.actors.iter().map(|actor| &actor.manager)
    }

    /// Sends a message to the actor that the pool's [`Routing`] chooses.
    ///
    /// Encodes the message on this thread, sends it to that actor's process, and returns at once.
    ///
    /// # Errors
    /// As [`RemoteAddr::send`]: [`Error::ActorStopped`] if the actor's process dies before it has
    /// answered, unless the pool [resends](ActorPoolBuilder::resend).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use actix::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # struct Squarer;
    /// # impl Actor for Squarer {
    /// #     type Context = Context<Self>;
    /// # }
    /// # #[derive(Clone, Message, Serialize, Deserialize)]
    /// # #[rtype(result = "u64")]
    /// # struct Square(u64);
    /// # impl Handler<Square> for Squarer {
    /// #     type Result = u64;
    /// #     fn handle(&mut self, square: Square, _: &mut Context<Self>) -> u64 {
    /// #         square.0 * square.0
    /// #     }
    /// # }
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Squarer, 0..2).wait()?;
    /// let (first, second) = (pool.send(Square(3)), pool.send(Square(4))); // one for each actor
    /// assert_eq!((first.wait()?, second.wait()?), (9, 16));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.choose().send(message)
    }

    /// Sends a message to the actor to which `key` belongs.
    ///
    /// In pools of the same size, a key always belongs to the same actor, in all runs of a program.
    /// It stays with that actor while the actor restarts, and when it has ended for good. The
    /// choice costs a hash of the key for each actor.
    ///
    /// # Errors
    /// As [`send`](ActorPool::send).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use actix::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Default)]
    /// # struct Counter(u64);
    /// # impl Actor for Counter {
    /// #     type Context = Context<Self>;
    /// # }
    /// # #[derive(Message, Serialize, Deserialize)]
    /// # #[rtype(result = "u64")]
    /// # struct Add(u64);
    /// # impl Handler<Add> for Counter {
    /// #     type Result = u64;
    /// #     fn handle(&mut self, add: Add, _: &mut Context<Self>) -> u64 {
    /// #         self.0 += add.0;
    /// #         self.0
    /// #     }
    /// # }
    /// // Each actor counts for the users that belong to it.
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Counter::default(), 0..3).wait()?;
    /// assert_eq!(pool.send_to("alice", Add(1)).wait()?, 1);
    /// assert_eq!(pool.send_to("alice", Add(1)).wait()?, 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send_to<M>(&self, key: &(impl Hash + ?Sized), message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.actors[actor_of(key, self.actors.len())].send(message)
    }

    /// Sends a message to each actor, and returns the replies in the actors' order.
    ///
    /// Clones and encodes the message for each actor, on this thread. A reply fails by itself: see
    /// [`send`](ActorPool::send).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use actix::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # struct Squarer;
    /// # impl Actor for Squarer {
    /// #     type Context = Context<Self>;
    /// # }
    /// # #[derive(Clone, Message, Serialize, Deserialize)]
    /// # #[rtype(result = "u64")]
    /// # struct Square(u64);
    /// # impl Handler<Square> for Squarer {
    /// #     type Result = u64;
    /// #     fn handle(&mut self, square: Square, _: &mut Context<Self>) -> u64 {
    /// #         square.0 * square.0
    /// #     }
    /// # }
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Squarer, 0..3).wait()?;
    /// for reply in pool.broadcast(Square(3)) {
    ///     assert_eq!(reply.wait()?, 9);
    /// }
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn broadcast<M>(&self, message: M) -> Vec<Reply<M::Result>>
    where
        M: RemoteMessage + Clone,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.actors.iter().map(|actor| actor.send(message.clone())).collect()
    }

    /// Stops all actors and their processes, as [`AsyncManager::stop`].
    ///
    /// The actors stop at the same time; those that exceed [`ManagerBuilder::shutdown`] are killed.
    /// The reply is ready when all processes are gone. It happens whether or not the reply is
    /// awaited.
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
        let stopping: Vec<_> = self.actors.iter().map(|actor| actor.manager.stop()).collect();
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
        let ending: Vec<_> = self.actors.iter().map(|actor| actor.manager.join()).collect();
        Reply::new(try_join_all(ending))
    }

    fn choose(&self) -> &PooledActor<A> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = |offset: usize| &self.actors[turn.wrapping_add(offset) % self.actors.len()];
        let mut living = (0..self.actors.len()).map(in_turn).filter(|actor| actor.is_living());
        let chosen = match self.routing {
            Routing::RoundRobin => living.next(),
            Routing::LeastLoaded => living.min_by_key(|actor| actor.load.load(Ordering::Relaxed)),
        };
        chosen.unwrap_or_else(|| in_turn(0))
    }
}

impl<A: Actor> PooledActor<A> {
    /// Returns whether the actor runs or will be restarted.
    fn is_living(&self) -> bool {
        !self.manager.is_gone()
    }

    fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.addr.send_counted(message, Load::new(&self.load))
    }
}

/// Returns to which of `count` actors a key belongs, by rendezvous hashing (D. G. Thaler and C. V.
/// Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on
/// Networking 6 (1998)): with one actor more, only the keys that move to it change theirs.
fn actor_of(key: &(impl Hash + ?Sized), count: usize) -> usize {
    let weight = |actor: usize| {
        let mut hasher = StableHasher(blake3::Hasher::new());
        (actor as u64).hash(&mut hasher);
        key.hash(&mut hasher);
        hasher.finish()
    };
    (0..count).max_by_key(|actor| weight(*actor)).unwrap_or_default()
}

/// A hasher whose values stay the same. Those of the standard library may change with a release.
struct StableHasher(blake3::Hasher);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        u64::from_le_bytes(
            self.0.finalize().as_bytes()[..8].try_into().expect("a hash has 32 bytes"),
        )
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl<A: Actor> fmt::Debug for ActorPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorPool")
            .field("routing", &self.routing)
            .field("actors", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::actor_of;

    #[test]
    fn one_actor_more_takes_keys_from_the_others_and_moves_no_other_key() {
        for key in 0..1000 {
            let (before, after) = (actor_of(&key, 7), actor_of(&key, 8));
            assert!(after == before || after == 7);
        }
        let moved = (0..1000).filter(|key| actor_of(key, 8) == 7).count();
        assert!((60..200).contains(&moved), "{moved} of 1000 keys moved, not about 125");
    }
}
