//! Addresses of actor pools.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::dev::ToEnvelope;
use actix::{Actor, Handler, Recipient};
use fiber_core::Result;
use futures_util::future::try_join_all;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Routing;
use super::keys::actor_of;
use crate::remote::{RemoteAddr, RemoteMessage, SendError};
use fiber_runtime::mesh::Load;
use fiber_runtime::reply::Reply;
use fiber_supervisor::supervisor::Down;

/// The address of an [`ActorPool`](super::ActorPool) in any process of the program.
///
/// It can be an argument of a task, a field of a message, or an element of a queue. It routes
/// messages as the pool does: clones in one process share turns and loads, and other processes have
/// their own. An actor that has ended for good gets no more messages from the process that made the
/// pool; other processes learn of the end when a message fails.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// use fiber::actor_pool::{ActorPool, ActorPoolAddr};
///
/// let pool = ActorPool::builder().start(Counter, [0, 0]).wait()?;
/// let addr: ActorPoolAddr<Counter> = pool.addr();
/// assert_eq!(fiber::Pool::new(2)?.map(
///     |(counters, number): (ActorPoolAddr<Counter>, u64)| {
///         counters.send_to("sum", Add(number)).wait().is_ok()
///     },
///     [(addr.clone(), 3), (addr.clone(), 4)],
/// ).wait()?, [true, true]);
/// assert_eq!(addr.send_to("sum", Add(0)).wait()?, 7);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct ActorPoolAddr<A> {
    actors: Arc<[PooledActor<A>]>,
    routing: Routing,
    /// Counts the messages, for actors that take turns.
    turn: Arc<AtomicUsize>,
}

struct PooledActor<A> {
    addr: RemoteAddr<A>,
    /// The number of unanswered calls of this process.
    load: Arc<AtomicUsize>,
}

impl<A: Actor> ActorPoolAddr<A> {
    /// Returns the number of actors, those that have ended included. The example of
    /// [`builder`](super::ActorPool::builder) shows it.
    pub fn size(&self) -> usize {
        self.actors.len()
    }

    /// Returns the addresses of all actors, in the order of their arguments.
    ///
    /// [`Routing::LeastLoaded`] does not count calls that go through them.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10, 20]).wait()?;
    /// let second = pool.addrs().nth(1).unwrap();
    /// assert_eq!(second.send(Add(3)).wait()?, 23);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn addrs(&self) -> impl ExactSizeIterator<Item = &RemoteAddr<A>> {
        self.actors.iter().map(|actor| &actor.addr)
    }

    /// Sends a message to the actor that the pool's [`Routing`] chooses.
    ///
    /// Encodes the message on this thread, sends it to that actor's process, and returns at once.
    ///
    /// # Errors
    /// As [`RemoteAddr::send`]: [`Error::ActorStopped`](fiber_core::Error::ActorStopped) if the
    /// actor's process dies before it has answered, unless the pool
    /// [resends](super::ActorPoolBuilder::resend).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10, 20]).wait()?;
    /// let (first, second) = (pool.send(Add(1)), pool.send(Add(1))); // one for each actor
    /// assert_eq!((first.wait()?, second.wait()?), (11, 21));
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

    /// Sends a message without an answer to the actor that the pool's [`Routing`] chooses, and
    /// ignores all errors. [`Routing::LeastLoaded`] does not count it. See [`RemoteAddr::do_send`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10]).wait()?;
    /// pool.do_send(Add(1));
    /// assert_eq!(pool.send(Add(1)).wait()?, 12);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn do_send<M>(&self, message: M)
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.choose().addr.do_send(message);
    }

    /// Sends a message without an answer to the actor that the pool's [`Routing`] chooses.
    /// [`Routing::LeastLoaded`] does not count it.
    ///
    /// # Errors
    /// As [`RemoteAddr::try_send`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10]).wait()?;
    /// pool.try_send(Add(1))?;
    /// assert_eq!(pool.send(Add(1)).wait()?, 12);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn try_send<M>(&self, message: M) -> Result<(), SendError<M>>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.choose().addr.try_send(message)
    }

    /// Sends a message to the actor to which `key` belongs.
    ///
    /// In pools of the same size, a key always belongs to the same actor, in all runs of a program.
    /// It stays with that actor while the actor restarts, and when it has ended for good. The
    /// choice costs a hash of the key for each actor.
    ///
    /// # Errors
    /// As [`send`](ActorPoolAddr::send).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// // Each actor counts for the users that belong to it.
    /// let pool = fiber::ActorPool::builder().start(Counter, [0, 0, 0]).wait()?;
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
    /// [`send`](ActorPoolAddr::send).
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

    /// Sends `recipient` a [`Down`] at the end of each incarnation of each actor. The reply is
    /// ready when all watches have begun. [`RemoteAddr::watch`] has an example.
    pub fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        let watches: Vec<_> = self.addrs().map(|addr| addr.watch(recipient.clone())).collect();
        Reply::new(async move { try_join_all(watches).await.map(drop) })
    }

    fn choose(&self) -> &PooledActor<A> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = |offset: usize| &self.actors[turn.wrapping_add(offset) % self.actors.len()];
        let mut living = (0..self.actors.len()).map(in_turn).filter(|actor| actor.addr.connected());
        let chosen = match self.routing {
            Routing::RoundRobin => living.next(),
            Routing::LeastLoaded => living.min_by_key(|actor| actor.load.load(Ordering::Relaxed)),
        };
        chosen.unwrap_or_else(|| in_turn(0))
    }
}

impl<A> ActorPoolAddr<A> {
    /// Makes the address of a pool of at least one actor.
    pub(super) fn new(addrs: Vec<RemoteAddr<A>>, routing: Routing) -> ActorPoolAddr<A> {
        let pooled = |addr| PooledActor { addr, load: Arc::default() };
        let actors = addrs.into_iter().map(pooled).collect();
        ActorPoolAddr { actors, routing, turn: Arc::default() }
    }
}

impl<A: Actor> PooledActor<A> {
    fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.addr.send_counted(message, Load::new(&self.load))
    }
}

impl<A> Clone for ActorPoolAddr<A> {
    fn clone(&self) -> ActorPoolAddr<A> {
        let (actors, turn) = (Arc::clone(&self.actors), Arc::clone(&self.turn));
        ActorPoolAddr { actors, routing: self.routing, turn }
    }
}

/// Two addresses are equal if they are of the same actors.
impl<A> PartialEq for ActorPoolAddr<A> {
    fn eq(&self, other: &ActorPoolAddr<A>) -> bool {
        self.actors.iter().map(|actor| &actor.addr).eq(other.actors.iter().map(|actor| &actor.addr))
    }
}

impl<A> Eq for ActorPoolAddr<A> {}

impl<A> fmt::Debug for ActorPoolAddr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actors: Vec<_> = self.actors.iter().map(|actor| &actor.addr).collect();
        f.debug_struct("ActorPoolAddr")
            .field("routing", &self.routing)
            .field("actors", &actors)
            .finish()
    }
}

impl<A> Serialize for ActorPoolAddr<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let addrs: Vec<_> = self.actors.iter().map(|actor| &actor.addr).collect();
        (addrs, self.routing).serialize(serializer)
    }
}

impl<'de, A> Deserialize<'de> for ActorPoolAddr<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ActorPoolAddr<A>, D::Error> {
        let (addrs, routing): (Vec<RemoteAddr<A>>, _) = Deserialize::deserialize(deserializer)?;
        if addrs.is_empty() {
            return Err(serde::de::Error::custom("a pool of actors has at least 1"));
        }
        Ok(ActorPoolAddr::new(addrs, routing))
    }
}
