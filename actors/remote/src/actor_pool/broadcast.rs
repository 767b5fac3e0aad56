//! Messages to all actors of a pool.

use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Handler};

use super::ActorPoolAddr;
use super::addr::Chosen;
use crate::remote::{ForAll, RemoteMessage};
use fiber_runtime::reply::{Member, Replies};

impl<A: Actor> ActorPoolAddr<A> {
    /// Sends a message to each actor, and returns the replies in the actors' order.
    ///
    /// Encodes the message once, on this thread, and sends it once to each host that this process
    /// has started, unless it has handles of shared objects, each of which counts for its actor. A
    /// reply fails by itself: see [`send`](ActorPoolAddr::send).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10, 20, 30]).wait()?;
    /// assert_eq!(pool.broadcast(Add(1)).all().wait()?, [11, 21, 31]);
    /// let sum = pool.broadcast(Add(0)).reduce(|a, b| a + b);
    /// assert_eq!(sum.wait()?, Some(63));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn broadcast<M>(&self, message: M) -> Replies<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        let message = ForAll::new(message);
        let send = |to: Chosen<A>| Member {
            name: Arc::clone(&to.addr.untyped.target.name),
            reply: to.send::<M, M>(message.for_one()),
        };
        Replies::new(self.choose_all().into_iter().map(send).collect())
    }

    /// Sends a message without an answer to each actor, and ignores all errors. It is encoded as by
    /// [`broadcast`](ActorPoolAddr::broadcast).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10, 20]).wait()?;
    /// pool.do_broadcast(Add(1));
    /// assert_eq!(pool.broadcast(Add(1)).all().wait()?, [12, 22]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn do_broadcast<M>(&self, message: M)
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        let message = ForAll::new(message);
        self.choose_all().iter().for_each(|to| to.addr.do_send_outgoing(message.for_one()));
    }
}
