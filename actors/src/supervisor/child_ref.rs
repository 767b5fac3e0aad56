//! References to supervised actors.

use std::fmt;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message, Recipient};
use fiber_core::ExitReason;

use super::identity::{Down, Identity};
use super::slot::Slot;
use crate::reply::Reply;

/// A supervised actor, whichever incarnation of it is alive.
///
/// Its futures can be awaited on any thread, in any runtime.
pub struct ChildRef<A: Actor> {
    identity: Arc<Identity>,
    slot: Arc<Slot<A>>,
}

impl<A: Actor> ChildRef<A> {
    pub(super) fn new(identity: Arc<Identity>, slot: Arc<Slot<A>>) -> ChildRef<A> {
        ChildRef { identity, slot }
    }

    /// Its full name, with the supervisors above it: `app/counter`.
    pub fn path(&self) -> &str {
        self.identity.path()
    }

    /// The address of the current incarnation; `None` while it is being restarted, and when it has
    /// ended.
    pub fn addr(&self) -> Option<Addr<A>> {
        self.slot.now().map(|live| live.addr)
    }

    /// Sends a message and waits for the answer. While the actor is being restarted, the message
    /// waits with the reply.
    ///
    /// A handler that answers by a [`ResponseFuture`](actix::ResponseFuture) hands it to the
    /// thread, not to the actor: such an answer is waited for even if the actor ends before.
    ///
    /// # Errors
    /// [`Error::ActorStopped`](fiber_core::Error::ActorStopped) if the actor ends before it has
    /// answered, with the reason, or if it will not be started again.
    /// [`Error::System`](fiber_core::Error::System) if the actor lives, but dropped the future that
    /// was to give the answer.
    pub fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        let this = self.clone();
        Reply::begun(async move { this.slot.send(this.path(), message).await })
    }

    /// Tells `recipient` of the end of each incarnation from now on, exactly once each. If the
    /// actor will not be started again, it is told so at once.
    pub fn watch(&self, recipient: Recipient<Down>) {
        self.identity.watch(recipient);
    }

    /// Waits until the actor has ended and will not be started again, and says why it ended.
    pub fn join(&self) -> Reply<ExitReason> {
        let slot = self.slot.clone();
        Reply::new(async move { Ok(slot.ended().await) })
    }
}

impl<A: Actor> Clone for ChildRef<A> {
    fn clone(&self) -> ChildRef<A> {
        ChildRef { identity: self.identity.clone(), slot: self.slot.clone() }
    }
}

impl<A: Actor> fmt::Debug for ChildRef<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildRef").field(&self.path()).finish()
    }
}
