//! Addresses of actor pools.

use std::any::type_name;
use std::fmt;
use std::hash::Hash;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::dev::ToEnvelope;
use actix::{Actor, Handler, Recipient};
use fiber_core::{Error, Result};
use futures_util::future::try_join_all;
use parking_lot::RwLock;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Routing;
use crate::keys::{hash_of, weight};
use crate::remote::{Carrier, Method, Outgoing, RemoteAddr, RemoteMessage, SendError};
use fiber_runtime::mesh::Load;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::supervisor::Down;

/// The address of an [`ActorPool`](super::ActorPool) in any process of the program.
///
/// It can be an argument of a task, a field of a message, or an element of a queue. It routes
/// messages as the pool does: clones in one process share turns and loads, and other processes have
/// their own. An actor that has ended for good gets no more messages from the process that made the
/// pool; other processes learn of the end when a message fails. The pool's own address and its
/// clones follow [`add`](super::ActorPool::add) and [`remove`](super::ActorPool::remove); one that
/// has come from another process has the actors that the pool had when it was sent.
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
    members: Arc<Members<A>>,
    routing: Routing,
}

/// The actors that all clones of an address in one process share.
struct Members<A> {
    actors: RwLock<Arc<[PooledActor<A>]>>,
    /// Counts the messages, for actors that take turns.
    turn: AtomicUsize,
}

struct PooledActor<A> {
    addr: RemoteAddr<A>,
    /// The number by which keys belong to it. No later actor of the pool gets it.
    number: u64,
    /// The number of unanswered calls of this process.
    load: Arc<AtomicUsize>,
}

/// The actor that gets a message. An actor that is removed meanwhile stops after it.
pub(super) struct Chosen<A> {
    pub(super) addr: RemoteAddr<A>,
    load: Load,
}

impl<A: Actor> ActorPoolAddr<A> {
    /// Returns the number of actors, those that have ended included. The example of
    /// [`builder`](super::ActorPool::builder) shows it.
    pub fn size(&self) -> usize {
        self.actors().len()
    }

    /// Returns the addresses of all actors, in the order of their arguments and then of their
    /// [addition](super::ActorPool::add).
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
    pub fn addrs(&self) -> impl ExactSizeIterator<Item = RemoteAddr<A>> + use<A> {
        let addrs: Vec<_> = self.actors().iter().map(|actor| actor.addr.clone()).collect();
        addrs.into_iter()
    }

    /// Sends a message to the actor that the pool's [`Routing`] chooses.
    ///
    /// Encodes the message on this thread, sends it to that actor's process, and returns at once.
    ///
    /// # Errors
    /// As [`RemoteAddr::send`]: [`Error::ActorStopped`] if the actor's process dies before it has
    /// answered, unless the pool [resends](super::ActorPoolBuilder::resend).
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
        self.choose()
            .map_or_else(Reply::failed, |chosen| chosen.send::<M, M>(Outgoing::Value(&message)))
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
        do_send(self.choose(), &message);
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
        match self.choose() {
            Ok(chosen) => chosen.addr.try_send(message),
            Err(error) => Err(SendError::new(message, error)),
        }
    }

    /// Sends a message to the actor to which `key` belongs.
    ///
    /// In pools that were started with as many actors, a key always belongs to the same actor, in
    /// all runs of a program. It stays with that actor while the actor restarts, and when it has
    /// ended for good. An actor that is added takes keys from the others, and one that is removed
    /// leaves its keys to them; no other key moves. The choice costs a hash of the key for each
    /// actor.
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
        self.owner(key)
            .map_or_else(Reply::failed, |owner| owner.send::<M, M>(Outgoing::Value(&message)))
    }

    /// Sends a message without an answer to the actor to which `key` belongs, and ignores all
    /// errors. See [`send_to`](ActorPoolAddr::send_to) and [`RemoteAddr::do_send`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [0, 0, 0]).wait()?;
    /// pool.do_send_to("alice", Add(1));
    /// assert_eq!(pool.send_to("alice", Add(1)).wait()?, 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn do_send_to<M>(&self, key: &(impl Hash + ?Sized), message: M)
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        do_send(self.owner(key), &message);
    }

    /// Returns the address of some of the actors: those at these places, as
    /// [`addrs`](ActorPoolAddr::addrs) gives them. It routes as this one does, and keeps its actors
    /// when the pool grows or shrinks. They keep their [`index`](RemoteAddr::index).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are not so many actors.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10, 20, 30, 40]).wait()?;
    /// let half = pool.slice(2..)?;
    /// assert_eq!(half.broadcast(Add(1)).all().wait()?, [31, 41]);
    /// assert_eq!(half.addrs().next().unwrap().index(), Some(2));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<ActorPoolAddr<A>> {
        let actors = self.actors();
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => start.max(actors.len()),
        };
        let slice = actors.get(start..end).ok_or_else(|| {
            let problem = format!("there is no slice {start}..{end} of {} actors", actors.len());
            Error::invalid("ActorPoolAddr::slice", problem)
        })?;
        Ok(ActorPoolAddr::of(slice.iter().cloned(), self.routing))
    }

    /// Sends `recipient` a [`Down`] at the end of each incarnation of each actor, with the actor's
    /// [`index`](RemoteAddr::index). The reply is ready when all watches have begun.
    /// [`RemoteAddr::watch`] has an example.
    pub fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        let watches: Vec<_> = self.addrs().map(|addr| addr.watch(recipient.clone())).collect();
        Reply::new(async move { try_join_all(watches).await.map(drop) })
    }

    /// Returns the actor that gets the next message.
    ///
    /// # Errors
    /// There is none.
    fn choose(&self) -> Result<Chosen<A>> {
        let actors = self.members.actors.read();
        let turn = self.members.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = |offset: usize| actors.get(turn.wrapping_add(offset) % actors.len().max(1));
        let mut living =
            (0..actors.len()).filter_map(in_turn).filter(|actor| actor.addr.connected());
        let chosen = match self.routing {
            Routing::RoundRobin => living.next(),
            Routing::LeastLoaded => living.min_by_key(|actor| actor.load.load(Ordering::Relaxed)),
        };
        chosen.or_else(|| in_turn(0)).map(PooledActor::choose).ok_or_else(no_actors::<A>)
    }

    /// Returns the actor to which a key belongs.
    ///
    /// # Errors
    /// There is none.
    fn owner(&self, key: &(impl Hash + ?Sized)) -> Result<Chosen<A>> {
        let actors = self.members.actors.read();
        let hash = hash_of(key);
        let owner = actors.iter().max_by_key(|actor| weight(hash, actor.number));
        owner.map(PooledActor::choose).ok_or_else(no_actors::<A>)
    }
}

fn no_actors<A>() -> Error {
    Error::NoMembers { group: format!("ActorPoolAddr<{}>", type_name::<A>()) }
}

/// Sends a message without an answer. Without an actor it is a dead letter.
fn do_send<A, M>(to: Result<Chosen<A>>, message: &M)
where
    M: RemoteMessage,
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M> + 'static,
{
    match to {
        Ok(to) => to.addr.do_send_outgoing(Outgoing::Value(message)),
        Err(error) => {
            if let Ok(runtime) = Runtime::get() {
                runtime.dead_letters().note(type_name::<A>(), 1, error);
            }
        }
    }
}

impl<A> ActorPoolAddr<A> {
    /// Makes the address of a pool whose actors have numbers from 0 on.
    pub(super) fn new(addrs: Vec<RemoteAddr<A>>, routing: Routing) -> ActorPoolAddr<A> {
        let numbered = addrs.into_iter().zip(0..);
        ActorPoolAddr::of(numbered.map(|(addr, number)| PooledActor::new(addr, number)), routing)
    }

    fn of(actors: impl Iterator<Item = PooledActor<A>>, routing: Routing) -> ActorPoolAddr<A> {
        let members = Members { actors: RwLock::new(actors.collect()), turn: AtomicUsize::new(0) };
        ActorPoolAddr { members: Arc::new(members), routing }
    }

    /// Returns the actors, which all get a message.
    pub(super) fn choose_all(&self) -> Vec<Chosen<A>> {
        self.members.actors.read().iter().map(PooledActor::choose).collect()
    }

    fn actors(&self) -> Arc<[PooledActor<A>]> {
        Arc::clone(&self.members.actors.read())
    }

    /// Adds an actor with the next `number`, for all clones in this process.
    pub(super) fn add(&self, addr: RemoteAddr<A>, number: u64) {
        let mut actors = self.members.actors.write();
        let added = std::iter::once(PooledActor::new(addr, number));
        *actors = actors.iter().cloned().chain(added).collect();
    }

    /// Removes an actor, for all clones in this process. Returns the number of its unanswered
    /// calls, which goes on counting.
    pub(super) fn remove(&self, addr: &RemoteAddr<A>) -> Arc<AtomicUsize>
    where
        A: Actor,
    {
        let mut actors = self.members.actors.write();
        let (removed, left): (Vec<_>, Vec<_>) =
            actors.iter().cloned().partition(|actor| actor.addr == *addr);
        *actors = left.into();
        removed.into_iter().next().map(|actor| actor.load).unwrap_or_default()
    }
}

impl<A> PooledActor<A> {
    fn new(mut addr: RemoteAddr<A>, number: u64) -> PooledActor<A> {
        addr.untyped.index = Some(number);
        PooledActor { addr, number, load: Arc::default() }
    }

    /// Counts a message that is going to be sent. It is called under the lock of the actors.
    fn choose(&self) -> Chosen<A> {
        Chosen { addr: self.addr.clone(), load: Load::new(&self.load) }
    }
}

clone_handle!(PooledActor<A> { addr, number, load });

impl<A: Actor> Chosen<A> {
    /// Sends a message that may travel in another. The actor's load counts it until it is answered.
    pub(super) fn send<M, C>(self, message: Outgoing<'_, C>) -> Reply<C::Result>
    where
        M: RemoteMessage,
        C: Carrier<M>,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        let method = Method::<A, M, C>::ENTRY.reference();
        self.addr.untyped.call_named(type_name::<M>(), method, message, Some(self.load))
    }
}

clone_handle!(ActorPoolAddr<A> { members, routing });

/// Two addresses are equal if they are of the same actors.
impl<A> PartialEq for ActorPoolAddr<A> {
    fn eq(&self, other: &ActorPoolAddr<A>) -> bool {
        let (own, others) = (self.actors(), other.actors());
        own.iter().map(|actor| &actor.addr).eq(others.iter().map(|actor| &actor.addr))
    }
}

impl<A> Eq for ActorPoolAddr<A> {}

impl<A> fmt::Debug for ActorPoolAddr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actors = self.actors();
        let actors: Vec<_> = actors.iter().map(|actor| &actor.addr).collect();
        f.debug_struct("ActorPoolAddr")
            .field("routing", &self.routing)
            .field("actors", &actors)
            .finish()
    }
}

/// The pool of these actors. They take turns, and their numbers are those of their places here.
///
/// Without actors, messages fail with [`Error::NoMembers`].
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// use fiber::{AsyncManager, actor_pool::ActorPoolAddr};
///
/// let counters = [1, 2].map(|count| AsyncManager::start(Counter, count).wait().unwrap());
/// let pool: ActorPoolAddr<Counter> = counters.iter().map(|counter| counter.addr()).collect();
/// assert_eq!(pool.broadcast(Add(10)).all().wait()?, [11, 12]);
/// # Ok::<(), fiber::Error>(())
/// ```
impl<A> FromIterator<RemoteAddr<A>> for ActorPoolAddr<A> {
    fn from_iter<I: IntoIterator<Item = RemoteAddr<A>>>(addrs: I) -> ActorPoolAddr<A> {
        ActorPoolAddr::new(addrs.into_iter().collect(), Routing::default())
    }
}

/// The addresses have the numbers.
impl<A> Serialize for ActorPoolAddr<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let actors = self.actors();
        let addrs: Vec<_> = actors.iter().map(|actor| &actor.addr).collect();
        (addrs, self.routing).serialize(serializer)
    }
}

impl<'de, A> Deserialize<'de> for ActorPoolAddr<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ActorPoolAddr<A>, D::Error> {
        let (addrs, routing): (Vec<RemoteAddr<A>>, _) = Deserialize::deserialize(deserializer)?;
        let pooled = |(addr, place): (RemoteAddr<A>, u64)| {
            let number = addr.untyped.index.unwrap_or(place);
            PooledActor::new(addr, number)
        };
        Ok(ActorPoolAddr::of(addrs.into_iter().zip(0..).map(pooled), routing))
    }
}
