//! References to supervised actors.

use std::fmt;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message, Recipient};
use fiber_core::ExitReason;

use super::identity::{Down, Identity};
use super::incarnation::Current;
use crate::reply::Reply;

/// A handle of a supervised actor, which leads to its current incarnation.
///
/// It works on any thread, in any runtime and without one. Dropping it stops nothing.
pub struct ChildRef<A: Actor> {
    identity: Arc<Identity>,
    current: Arc<Current<A>>,
}

impl<A: Actor> ChildRef<A> {
    pub(super) fn new(identity: Arc<Identity>, current: Arc<Current<A>>) -> ChildRef<A> {
        ChildRef { identity, current }
    }

    /// Returns the full name, with the supervisors above: `app/counter`.
    pub fn path(&self) -> &str {
        self.identity.path()
    }

    /// Returns the address of the current incarnation, or `None` during a restart and after the
    /// end.
    pub fn addr(&self) -> Option<Addr<A>> {
        self.current.get().map(|incarnation| incarnation.addr)
    }

    /// Sends a message and waits for the answer. During a restart, the message waits for the next
    /// incarnation.
    ///
    /// The thread, not the actor, runs the answer of a handler that returns a
    /// [`ResponseFuture`](actix::ResponseFuture): the reply waits for it even if the actor ends
    /// before.
    ///
    /// # Errors
    /// [`Error::ActorStopped`](fiber_core::Error::ActorStopped) if the actor ends before it has
    /// answered, with the reason, or if it is not restarted.
    /// [`Error::System`](fiber_core::Error::System) if the actor is alive, but has dropped the
    /// future of the answer.
    pub fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        let this = self.clone();
        Reply::begun(async move { this.current.send(this.path(), message).await })
    }

    /// Sends `recipient` one [`Down`] for the end of each incarnation, from now on. If the actor
    /// has ended for good, sends one at once.
    pub fn watch(&self, recipient: Recipient<Down>) {
        self.identity.watch(recipient);
    }

    /// Waits until the actor has ended for good, and returns the reason. Asks nothing of it.
    pub fn join(&self) -> Reply<ExitReason> {
        let current = self.current.clone();
        Reply::new(async move { Ok(current.removed().await) })
    }
}

impl<A: Actor> Clone for ChildRef<A> {
    fn clone(&self) -> ChildRef<A> {
        ChildRef { identity: self.identity.clone(), current: self.current.clone() }
    }
}

impl<A: Actor> fmt::Debug for ChildRef<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildRef").field(&self.path()).finish()
    }
}
