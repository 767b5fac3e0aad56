//! Addresses of actors in other processes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Actor, Handler, Recipient};
use fiber_core::{ExitReason, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::export::LocalActor;
use super::message::RemoteMessage;
use super::method::Method;
use super::outgoing::Outgoing;
use super::recipient::RemoteRecipient;
use super::send_error::SendError;
use super::untyped::{Target, UntypedAddr};
use fiber_runtime::mesh::{OwnedActor, ProcessRef, Query};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::supervisor::Down;

/// The address of an actor in any process of the program, as [`actix::Addr`] is in one process.
///
/// It can be an argument of a task, a field of a message, or an element of a queue, and works in
/// every process where it arrives. Messages and results implement serde's traits.
///
/// - **Cost.** A message is one frame, and its answer another, directly from process to process.
///   The first message to a process connects to it; the first one to a managed actor also asks the
///   actor's owner where it is. Cloning an address sends nothing.
/// - **Order.** Messages from one process to one actor arrive in the order in which they were sent.
/// - **Deaths.** The address of a [managed](crate::manager::AsyncManager) actor stays valid when
///   the actor is restarted: messages that are sent meanwhile wait. Calls that were pending when
///   the actor died fail with the reason, or are sent again if [`resend`](RemoteAddr::resend) was
///   chosen. The address of an exported actor is valid until the actor, or its process, ends.
///
/// # Examples
/// The examples of the methods use this actor and its message, too.
///
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// struct Counter(u64);
///
/// #[fiber::message(u64)]
/// struct Add(u64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::handlers]
/// impl Counter {
///     fn add(&mut self, Add(number): Add) -> u64 {
///         self.0 = self.0.checked_add(number).expect("it counts to 2^64");
///         self.0
///     }
/// }
///
/// fn add_three(counter: RemoteAddr<Counter>) -> u64 {
///     counter.send(Add(3)).wait().unwrap()
/// }
///
/// System::new().block_on(async {
///     let counter = RemoteAddr::export(Counter(1).start())?;
///     assert_eq!(Process::spawn(add_three, counter.clone()).await?, 4);
///     assert_eq!(counter.send(Add(1)).await?, 5);
///     fiber::Result::<()>::Ok(())
/// })?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct RemoteAddr<A> {
    pub(crate) untyped: UntypedAddr,
    actor: PhantomData<fn() -> A>,
}

impl<A: Actor> RemoteAddr<A> {
    /// Makes an actor of this process reachable from the other processes of this program, until it
    /// ends. [`RemoteAddr`] has an example.
    ///
    /// The argument is an [`Addr`](actix::Addr), or the
    /// [`ChildRef`](fiber_supervisor::supervisor::ChildRef) of a supervised actor. The address of a
    /// supervised actor stays valid when the actor is restarted: messages wait meanwhile. It is the
    /// same each time.
    ///
    /// This keeps an actor alive that has no supervisor: it has to stop by itself. Messages take the
    /// shortest way if this is called on the thread where the actor was started.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system; [`Error::WouldDeadlock`](fiber_core::Error::WouldDeadlock) on fiber's
    /// own thread, before this process listens for connections.
    pub fn export(actor: impl LocalActor<A>) -> Result<RemoteAddr<A>> {
        actor.export()
    }

    /// Returns the address of an actor that this process owns.
    pub(crate) fn owned(runtime: &Runtime, home: ProcessRef, owned: &OwnedActor) -> RemoteAddr<A> {
        RemoteAddr::of(UntypedAddr::new(Target::owned(runtime, home, owned)))
    }

    /// Returns the address of an actor that is of this type.
    pub(crate) fn of(untyped: UntypedAddr) -> RemoteAddr<A> {
        RemoteAddr { untyped, actor: PhantomData }
    }

    /// Returns the actor's name: its manager's, or its type.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let builder = fiber::AsyncManager::builder().name("visitors");
    /// let counter = builder.start(Counter, 0).wait()?;
    /// assert_eq!(counter.addr().name(), "visitors");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.untyped.target.name
    }

    /// Returns the actor's number in its pool, if the address has come from a pool's.
    ///
    /// Numbers begin with 0, in the order of the arguments and then of their
    /// [addition](crate::actor_pool::ActorPool::add). A number that an actor has had is never
    /// another's. [`ActorPoolAddr::slice`](crate::actor_pool::ActorPoolAddr::slice) has an example.
    pub fn index(&self) -> Option<usize> {
        self.untyped.index.map(|index| index as usize)
    }

    /// Returns the same address with a time limit for each call. Calls that are not answered within
    /// it fail with [`Error::TimedOut`](fiber_core::Error::TimedOut); the actor may have handled
    /// their messages, and handles none that it comes to later. Calls that a handler makes have the
    /// limit, too: see [`deadline`](super::deadline). By default calls wait until the actor ends.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use std::time::Duration;
    ///
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let addr = counter.addr().timeout(Duration::from_secs(10));
    /// assert_eq!(addr.send(Add(1)).wait()?, 1);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> RemoteAddr<A> {
        self.untyped.timeout = Some(limit);
        self
    }

    /// Returns the same address, whose calls are sent again when the actor's process dies before it
    /// has answered: the actor may then handle a message twice. By default such calls fail. This
    /// makes a difference for managed actors only, which are restarted.
    ///
    /// Each call then keeps its message in memory until it is answered. A call whose handler panics
    /// is not sent again.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let addr = counter.addr().resend();
    /// counter.kill_process();
    /// assert_eq!(addr.send(Add(1)).wait()?, 1); // this process answers, or the next one
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use]
    pub fn resend(mut self) -> RemoteAddr<A> {
        self.untyped.resend = true;
        self
    }

    /// Sends a message, at once. The reply is the handler's result.
    ///
    /// The message is encoded on this thread. Dropping the reply does not take it back.
    ///
    /// # Errors
    /// The reply fails with [`Error::Call`](fiber_core::Error::Call) if the handler failed;
    /// [`Error::ActorStopped`](fiber_core::Error::ActorStopped) if the actor or its process ended
    /// before it answered; [`Error::TimedOut`](fiber_core::Error::TimedOut),
    /// [`Error::MailboxFull`](fiber_core::Error::MailboxFull) or
    /// [`Error::TooLarge`](fiber_core::Error::TooLarge).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 1).wait()?;
    /// assert_eq!(counter.send(Add(2)).wait()?, 3);
    /// // The handler panics. A managed actor is then made again.
    /// let error = counter.send(Add(u64::MAX)).wait().unwrap_err();
    /// assert!(error.to_string().contains("it counts to 2^64"));
    /// assert_eq!(counter.send(Add(2)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.untyped.call(Method::<A, M, M>::ENTRY.reference(), Outgoing::Value(&message), None)
    }

    /// Sends a message without an answer, and ignores all errors.
    pub(crate) fn do_send_outgoing<M>(&self, message: Outgoing<'_, M>)
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.untyped.do_send(Method::<A, M, M>::ENTRY.reference(), message);
    }

    /// Sends a message without an answer, and ignores all errors.
    ///
    /// The message arrives before this process exits in order, unless that takes longer than two
    /// seconds. It is lost if the actor's process dies before the handler runs.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// counter.do_send(Add(1));
    /// assert_eq!(counter.send(Add(2)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn do_send<M>(&self, message: M)
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.do_send_outgoing(Outgoing::Value(&message));
    }

    /// Sends a message without an answer. Does not wait.
    ///
    /// # Errors
    /// Errors that this process knows at once, with the message: the message can't be encoded or is
    /// too large, or the process of an exported actor is gone. Only [`send`](RemoteAddr::send)
    /// reports a full mailbox, or a managed actor that has ended.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// counter.try_send(Add(1))?;
    /// assert_eq!(counter.send(Add(2)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn try_send<M>(&self, message: M) -> Result<(), SendError<M>>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        let sent =
            self.untyped.try_send(Method::<A, M, M>::ENTRY.reference(), Outgoing::Value(&message));
        sent.map_err(|error| SendError::new(message, error))
    }

    /// Returns the address for one type of message. It sends nothing. [`RemoteRecipient`] has an
    /// example.
    pub fn recipient<M>(&self) -> RemoteRecipient<M>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        RemoteRecipient::new(self.untyped.clone(), Method::<A, M, M>::ENTRY.reference())
    }

    /// Returns whether the actor may be there: `false` only if this process knows that it is gone
    /// for good. It sends nothing, so a process learns of the end when a message fails.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// assert!(counter.connected());
    /// counter.stop().wait()?;
    /// assert!(counter.send(Add(1)).wait().is_err());
    /// assert!(!counter.connected());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn connected(&self) -> bool {
        self.untyped.connected()
    }

    /// Waits until the actor has ended and will not be restarted. Returns the reason.
    ///
    /// If the process that knows it dies, the reason is why that process can't be reached.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let ended = counter.addr().join();
    /// drop(counter); // stops the actor
    /// assert_eq!(ended.wait()?, fiber::error::ExitReason::Dropped);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(&self) -> Reply<ExitReason> {
        let addr = self.untyped.clone();
        Reply::named(format!("the end of actor `{}`", self.name()), async move {
            let runtime = addr.runtime()?;
            let query = Query::ActorEnd { actor: addr.target.actor };
            let reason = on_runtime(runtime, move || async move {
                runtime.mesh().query(&addr.target.home, query).await
            });
            Ok(reason.await.unwrap_or_else(|reason| reason))
        })
    }

    /// Sends `recipient` a [`Down`] at the end of each incarnation. The reply is ready when the
    /// watch has begun. `Down` has the [`index`](RemoteAddr::index) of this address.
    ///
    /// The last one is sent when the actor has ended for good, or its owner can't be reached.
    /// [`Down`] has an example of a recipient.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// # use fiber::supervisor::Down;
    /// # struct Watcher(Queue<fiber::error::ExitReason>);
    /// # impl Actor for Watcher {
    /// #     type Context = Context<Self>;
    /// # }
    /// # #[fiber::handlers]
    /// # impl Watcher {
    /// #     fn down(&mut self, down: Down) {
    /// #         drop(self.0.put(down.reason));
    /// #     }
    /// # }
    /// # System::new().block_on(async {
    /// let ends = fiber::Queue::new()?;
    /// let watcher = Watcher(ends.clone()).start();
    /// let counter = fiber::AsyncManager::start(Counter, 0).await?;
    /// counter.watch(watcher.recipient()).await?;
    /// counter.kill_process();
    /// assert_eq!(ends.get().await?, fiber::error::ExitReason::Signal(9));
    /// # fiber::Result::<()>::Ok(())
    /// # })?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        self.untyped.watch(recipient)
    }
}

/// Runs a future on the runtime's thread, and returns its output.
async fn on_runtime<T: Send + 'static, F: Future<Output = Result<T, ExitReason>> + 'static>(
    runtime: &'static Runtime,
    future: impl FnOnce() -> F + Send + 'static,
) -> Result<T, ExitReason> {
    let (sender, value) = oneshot::channel();
    runtime.spawn(move || async move { drop(sender.send(future().await)) });
    value.await.unwrap_or_else(|_| Err(ExitReason::LinkLost("this process ends".into())))
}

clone_handle!(RemoteAddr<A> { untyped, actor });

/// Two addresses are equal if they are of the same actor.
impl<A> PartialEq for RemoteAddr<A> {
    fn eq(&self, other: &RemoteAddr<A>) -> bool {
        self.untyped.target == other.untyped.target
    }
}

impl<A> Eq for RemoteAddr<A> {}

impl<A> Hash for RemoteAddr<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.untyped.target.home.id, self.untyped.target.actor).hash(state);
    }
}

impl<A> fmt::Debug for RemoteAddr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.untyped.target;
        write!(f, "RemoteAddr({} {} at {})", target.name, target.actor.0, target.home.id)
    }
}

#[cfg(test)]
mod tests {
    use fiber_values::entry::EntryRef;

    use super::*;

    struct Idle;

    impl Actor for Idle {
        type Context = actix::Context<Idle>;
    }

    #[derive(Serialize, Deserialize)]
    struct Unused;

    impl actix::Message for Unused {
        type Result = ();
    }

    /// Only another build could send one, and its processes are refused earlier.
    #[test]
    fn a_message_that_this_build_does_not_know_fails_its_call() {
        fiber_runtime::runtime::init();
        actix_rt::System::new().block_on(async {
            let idle = RemoteAddr::export(Idle.start()).unwrap();
            let unknown = EntryRef { offset: 8, name: 7 };
            let call = idle.untyped.call(unknown, Outgoing::Value(&Unused), None);
            let error = call.await.unwrap_err();
            assert!(error.to_string().contains("another build"), "{error}");
        });
    }
}
