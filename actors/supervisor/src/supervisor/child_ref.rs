//! References to supervised actors.

use std::any::Any;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message, Recipient};
use fiber_core::ExitReason;
use parking_lot::Mutex;

use super::identity::{ChildEnd, Down, Identity};
use super::incarnation::{Current, Incarnation};
use fiber_runtime::reply::Reply;

/// A handle of a supervised actor, which leads to its current incarnation.
///
/// It works on any thread, in any runtime and without one. Dropping it stops nothing. The actor is
/// in this process, so messages are not encoded: they need no serde.
///
/// # Examples
/// The example of [`SupervisorBuilder::start`](super::SupervisorBuilder::start) shows a call that
/// fails and the next one, which succeeds. The examples below use the same `Counter`.
///
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// use fiber::supervisor::{ChildRef, ChildSpec};
///
/// let spec = ChildSpec::actor("counter", || Counter(0));
/// let app = fiber::Supervisor::builder("app").child(spec).start().wait()?;
/// let counter: ChildRef<Counter> = app.child("counter")?;
/// assert_eq!(counter.path(), "app/counter");
/// assert_eq!(counter.send(Add(7)).wait()?, 7);
///
/// app.stop().wait()?;
/// assert!(counter.addr().is_none());
/// assert!(counter.join().wait()?.is_normal());
/// assert!(matches!(counter.send(Add(7)).wait(), Err(fiber::Error::ActorStopped { .. })));
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct ChildRef<A: Actor> {
    identity: Arc<Identity>,
    current: Arc<Current<A>>,
}

impl<A: Actor> ChildRef<A> {
    pub(super) fn new(identity: Arc<Identity>, current: Arc<Current<A>>) -> ChildRef<A> {
        ChildRef { identity, current }
    }

    /// Returns the full name, with the supervisors above: `app/counter`. [`ChildRef`] has an
    /// example.
    pub fn path(&self) -> &str {
        self.identity.path()
    }

    /// Returns the address of the current incarnation, or `None` during a restart and after the
    /// end. It does not lead to later incarnations.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let spec = fiber::supervisor::ChildSpec::actor("counter", || Counter(0));
    /// let app = fiber::Supervisor::builder("app").child(spec).start().wait()?;
    /// let addr: Addr<Counter> = app.child("counter")?.addr().unwrap();
    /// addr.do_send(Add(1));
    /// assert_eq!(app.child::<Counter>("counter")?.send(Add(1)).wait()?, 2);
    /// # app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn addr(&self) -> Option<Addr<A>> {
        self.current.get().map(|incarnation| incarnation.addr)
    }

    /// Sends a message. The reply is the handler's result. [`ChildRef`] has an example.
    ///
    /// The message is sent at once, during a restart to the next incarnation. It is handled although
    /// the reply is dropped.
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
        let (this, current) = (self.clone(), Arc::clone(&self.current));
        let answer = async move { this.current.send(this.path(), message).await };
        Reply::carried(answer, move || current.needs_this_thread())
    }

    /// Sends a message as [`send`](ChildRef::send) does, and drops the reply.
    pub fn do_send<M>(&self, message: M)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        drop(self.send(message));
    }

    /// Returns the current incarnation, or waits for the next one.
    ///
    /// # Errors
    /// The last exit reason, if there is no next one.
    #[doc(hidden)]
    pub async fn incarnation(&self) -> Result<Incarnation<A>, ExitReason> {
        self.current.wait().await
    }

    /// Returns why the actor has ended for good, if it has.
    #[doc(hidden)]
    pub fn end(&self) -> Option<ExitReason> {
        self.current.end()
    }

    /// Calls `listener` at the end of each incarnation, from now on, and when there is no next one.
    #[doc(hidden)]
    pub fn on_end(&self, listener: impl Fn(ChildEnd<'_>) + Send + 'static) {
        self.identity.listen(Box::new(listener));
    }

    /// Returns where the actor's address for other processes is kept.
    #[doc(hidden)]
    pub fn exported(&self) -> &Mutex<Option<Box<dyn Any + Send + Sync>>> {
        self.current.exported()
    }

    /// Sends `recipient` one [`Down`] for the end of each incarnation, from now on. If the actor
    /// has ended for good, sends one at once. [`Down`] has an example.
    pub fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        self.identity.watch(recipient);
        Reply::new(ready(Ok(())))
    }

    /// Waits until the actor has ended for good, and returns the reason. Asks nothing of it.
    /// [`ChildRef`] has an example.
    pub fn join(&self) -> Reply<ExitReason> {
        let (current, alive) = (self.current.clone(), self.current.clone());
        Reply::checked(async move { Ok(current.removed().await) }, move || alive.ends_here())
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
