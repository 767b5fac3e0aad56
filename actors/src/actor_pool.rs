//! Pools of actors in processes of their own.

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
use crate::remote::{RemoteAddr, RemoteMessage};
use crate::reply::Reply;

/// Which actor of an [`ActorPool`] a message goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routing {
    /// One after the other.
    #[default]
    RoundRobin,
    /// That with the fewest calls of this pool that have not been answered; among equals, one after
    /// the other.
    LeastLoaded,
}

/// Supervised actors of one type, each in a process of its own, that share the messages.
///
/// Each is a [manager](AsyncManager), restarted as one. Dropping the pool ends them.
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
/// let pending: Vec<_> = (0..10).map(|x| pool.send(Square(x))).collect();
/// let squares: Vec<u64> = pending.into_iter().map(|call| call.wait()).collect::<fiber::Result<_>>()?;
/// assert_eq!(squares[9], 81);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct ActorPool<A: Actor> {
    members: Vec<Member<A>>,
    routing: Routing,
    next: AtomicUsize,
}

struct Member<A: Actor> {
    manager: AsyncManager<A>,
    addr: RemoteAddr<A>,
    load: Arc<AtomicUsize>,
}

/// An actor pool to be; [`ActorPool::builder`] makes one.
#[derive(Clone, Debug)]
#[must_use]
pub struct ActorPoolBuilder<K = NoSnapshots> {
    manager: ManagerBuilder<K>,
    name: Option<String>,
    routing: Routing,
    resend: bool,
}

impl ActorPool<UnspecifiedActor> {
    /// An actor pool to be.
    pub fn builder() -> ActorPoolBuilder {
        let manager = AsyncManager::<UnspecifiedActor>::builder();
        ActorPoolBuilder { manager, name: None, routing: Routing::default(), resend: false }
    }
}

/// Stands where the type of a pool's actors is not known yet.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum UnspecifiedActor {}

impl Actor for UnspecifiedActor {
    type Context = Context<UnspecifiedActor>;
}

impl<K> ActorPoolBuilder<K> {
    /// Names the pool; its actors have this name and a number. The default is `actors-1` and so on.
    pub fn name(mut self, name: impl Into<String>) -> ActorPoolBuilder<K> {
        self.name = Some(name.into());
        self
    }

    /// Sets which actor a message goes to.
    pub fn routing(mut self, routing: Routing) -> ActorPoolBuilder<K> {
        self.routing = routing;
        self
    }

    /// Has calls sent again when their actor's process dies before it has answered them: see
    /// [`RemoteAddr::resend`].
    pub fn resend(mut self) -> ActorPoolBuilder<K> {
        self.resend = true;
        self
    }

    /// Sets all else about each of the actors: restarts, mailbox, resources, snapshots.
    pub fn manager<L>(
        self,
        change: impl FnOnce(ManagerBuilder<K>) -> ManagerBuilder<L>,
    ) -> ActorPoolBuilder<L> {
        let ActorPoolBuilder { manager, name, routing, resend } = self;
        ActorPoolBuilder { manager: change(manager), name, routing, resend }
    }

    /// Starts an actor for each of `args`, all at once. The reply comes when all are there.
    ///
    /// # Errors
    /// [`Error::Invalid`] without any; else as [`ManagerBuilder::start`]: if one can't be started,
    /// none is kept.
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
        K: SnapshotPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name =
            self.name.unwrap_or_else(|| format!("actors-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let start = |(number, args)| {
            self.manager.clone().name(format!("{name}-{number}")).start(factory, args)
        };
        let starting: Vec<_> = args.into_iter().enumerate().map(start).collect();
        let (routing, resend) = (self.routing, self.resend);
        Reply::new(async move {
            if starting.is_empty() {
                let problem = "it needs arguments for one actor at least".to_string();
                return Err(Error::invalid("ActorPoolBuilder::size", problem));
            }
            let managers = try_join_all(starting).await?;
            let member = |manager: AsyncManager<F::Output>| {
                let addr = if resend { manager.addr().resend() } else { manager.addr() };
                Member { manager, addr, load: Arc::default() }
            };
            let members = managers.into_iter().map(member).collect();
            Ok(ActorPool { members, routing, next: AtomicUsize::new(0) })
        })
    }
}

impl<A: Actor> ActorPool<A> {
    /// How many actors there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// `false`: a pool has one actor at least.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The addresses of all actors.
    pub fn addrs(&self) -> Vec<RemoteAddr<A>> {
        self.members.iter().map(|member| member.addr.clone()).collect()
    }

    /// The managers of all actors.
    pub fn managers(&self) -> impl Iterator<Item = &AsyncManager<A>> {
        self.members.iter().map(|member| &member.manager)
    }

    /// Sends a message to one of the actors, by the pool's [`Routing`].
    pub fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.next().send(message)
    }

    /// Sends a message to the actor that a key belongs to: always the same for the same key, in
    /// pools of one size, in all runs of a program.
    pub fn send_to<M>(&self, key: &(impl Hash + ?Sized), message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.members[place(key, self.members.len())].send(message)
    }

    /// Sends a message to each of the actors; the calls are in the actors' order.
    pub fn broadcast<M>(&self, message: M) -> Vec<Reply<M::Result>>
    where
        M: RemoteMessage + Clone,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.members.iter().map(|member| member.send(message.clone())).collect()
    }

    /// Stops all actors and their processes, as [`AsyncManager::stop`].
    ///
    /// The reply is ready when all processes are gone. It happens whether or not it is awaited.
    pub fn stop(&self) -> Reply<()> {
        let stopping: Vec<_> = self.members.iter().map(|member| member.manager.stop()).collect();
        Reply::new(async move { try_join_all(stopping).await.map(drop) })
    }

    /// Waits until all actors have ended for good, and returns why, in the actors' order.
    ///
    /// It does not stop them.
    pub fn join(&self) -> Reply<Vec<ExitReason>> {
        let ending: Vec<_> = self.members.iter().map(|member| member.manager.join()).collect();
        Reply::new(try_join_all(ending))
    }

    fn next(&self) -> &Member<A> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = |offset: usize| &self.members[turn.wrapping_add(offset) % self.members.len()];
        match self.routing {
            Routing::RoundRobin => in_turn(0),
            Routing::LeastLoaded => (0..self.members.len())
                .map(in_turn)
                .min_by_key(|member| member.load.load(Ordering::Relaxed))
                .expect("a pool has one actor at least"),
        }
    }
}

impl<A: Actor> Member<A> {
    fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.addr.send_counted(message, Load::new(&self.load))
    }
}

/// Where a key belongs among `count` places, by rendezvous hashing (D. G. Thaler and C. V.
/// Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on
/// Networking 6 (1998)): with one place more, only the keys that move there change theirs.
fn place(key: &(impl Hash + ?Sized), count: usize) -> usize {
    let weight = |place: usize| {
        let mut hasher = Stable(blake3::Hasher::new());
        (place as u64).hash(&mut hasher);
        key.hash(&mut hasher);
        hasher.finish()
    };
    (0..count).max_by_key(|place| weight(*place)).unwrap_or_default()
}

/// The standard library's hasher may change from release to release, and so may where keys belong.
struct Stable(blake3::Hasher);

impl Hasher for Stable {
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
    use super::place;

    #[test]
    fn one_place_more_moves_only_the_keys_that_go_there() {
        for key in 0..1000 {
            let (before, after) = (place(&key, 7), place(&key, 8));
            assert!(after == before || after == 7);
        }
        let there = (0..1000).filter(|key| place(key, 8) == 7).count();
        assert!((60..200).contains(&there), "an eighth of the keys moves there, not {there}");
    }
}
