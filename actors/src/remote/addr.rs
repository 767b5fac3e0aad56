//! Addresses of actors in other processes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Recipient};
use fiber_core::entry::EntryRef;
use fiber_core::transfer::{self, KeepAlive};
use fiber_core::{ExitReason, Result, codec};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::call::{Call, stopped};
use super::export::export;
use super::message::RemoteMessage;
use super::method::method;
use crate::mesh::{
    ActorId, Answer, End, Load, Payload, Pending, ProcessRef, Question, Route, Unanswered, Waiter,
};
use crate::reply::Reply;
use crate::runtime::Runtime;
use crate::supervisor::Down;

/// The address of an actor, wherever it is: what [`actix::Addr`] is in one process.
///
/// It can be an argument of a task, a field of a message, or an element of a queue, and works in
/// whatever process it arrives: messages go from node to node, not through the parent. Messages and
/// results need serde and nothing else.
///
/// - Messages from one process to one actor arrive in the order in which they were sent.
/// - The address of a [managed](crate::AsyncManager) actor stays valid when the actor is restarted:
///   what is sent meanwhile waits. Calls that were under way when it died fail with the reason, or
///   are sent again if [`resend`](RemoteAddr::resend) was chosen.
/// - An exported actor's address is valid for as long as the actor, and its process, live.
///
/// # Examples
/// ```
/// # fiber::init();
/// use actix::prelude::*;
/// use fiber::{Process, RemoteAddr};
/// use serde::{Deserialize, Serialize};
///
/// struct Counter(u64);
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[rtype(result = "u64")]
/// struct Add(u64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// impl Handler<Add> for Counter {
///     type Result = u64;
///
///     fn handle(&mut self, add: Add, _: &mut Context<Self>) -> u64 {
///         self.0 += add.0;
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
///     fiber::Result::Ok(())
/// })?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct RemoteAddr<A> {
    core: Core,
    actor: PhantomData<fn() -> A>,
}

/// A [`RemoteAddr`] that takes one kind of message, whatever the actor: what [`actix::Recipient`]
/// is in one process.
pub struct RemoteRecipient<M> {
    core: Core,
    method: EntryRef,
    message: PhantomData<fn(M)>,
}

/// An address, whatever its actor.
#[derive(Clone, Serialize, Deserialize)]
struct Core {
    target: Arc<Target>,
    /// The way to an owned actor, from its first use on. It lasts as long as an address, or a call
    /// under way, needs it.
    #[serde(skip)]
    route: Arc<OnceLock<Arc<Route>>>,
    timeout: Option<Duration>,
    resend: bool,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct Target {
    session: u64,
    name: Arc<str>,
    /// The actor's node, or its owner's.
    runtime: ProcessRef,
    actor: ActorId,
    owned: bool,
}

impl<A: Actor> RemoteAddr<A> {
    /// Makes a local actor reachable from the other processes of this program, for as long as it
    /// lives.
    ///
    /// It is kept alive by this, until it stops by itself. Called where the actor was started, its
    /// messages take the shortest way.
    ///
    /// # Errors
    /// If fiber can't work at all; [`Error::WouldDeadlock`] on fiber's own thread before this
    /// process has an address.
    pub fn export(addr: Addr<A>) -> Result<RemoteAddr<A>> {
        let runtime = Runtime::get()?;
        let home = ProcessRef { id: runtime.id(), address: runtime.address_now()?.into() };
        Ok(RemoteAddr::new(runtime, std::any::type_name::<A>(), home, export(runtime, addr), false))
    }

    /// The address of an actor that this node owns.
    pub(crate) fn owned(
        runtime: &Runtime,
        name: &str,
        home: ProcessRef,
        actor: ActorId,
    ) -> RemoteAddr<A> {
        RemoteAddr::new(runtime, name, home, actor, true)
    }

    fn new(
        runtime: &Runtime,
        name: &str,
        home: ProcessRef,
        actor: ActorId,
        owned: bool,
    ) -> RemoteAddr<A> {
        let target =
            Target { session: runtime.session(), name: name.into(), runtime: home, actor, owned };
        let core =
            Core { target: Arc::new(target), route: Arc::default(), timeout: None, resend: false };
        RemoteAddr { core, actor: PhantomData }
    }

    /// The actor's name: that of its manager, or its type.
    pub fn name(&self) -> &str {
        &self.core.target.name
    }

    /// The same address, whose calls fail when they have not been answered within `limit`. By
    /// default they wait for as long as the actor lives.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> RemoteAddr<A> {
        self.core.timeout = Some(limit);
        self
    }

    /// The same address, whose calls are sent again when the actor's process dies before it has
    /// answered them: they may then be handled twice. By default they fail. It only makes a
    /// difference for managed actors, which are restarted.
    #[must_use]
    pub fn resend(mut self) -> RemoteAddr<A> {
        self.core.resend = true;
        self
    }

    /// Sends a message; the future is its answer. It is sent at once, even if the future is never
    /// awaited.
    pub fn send<M>(&self, message: M) -> Call<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.core.call(method::<A, M>().reference(), &message, None)
    }

    /// As [`send`](RemoteAddr::send), counted until it is answered.
    pub(crate) fn send_counted<M>(&self, message: M, load: Load) -> Call<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.core.call(method::<A, M>().reference(), &message, Some(load))
    }

    /// Sends a message and forgets it, whatever becomes of it. It arrives before this process ends
    /// in order, unless that takes longer than two seconds.
    pub fn do_send<M>(&self, message: M)
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.core.tell(method::<A, M>().reference(), &message);
    }

    /// Sends a message without waiting for an answer.
    ///
    /// # Errors
    /// What is known at once: that the message can't be sent, or that the actor is gone. Whether
    /// its mailbox is full is known only where the actor is: a [`send`](RemoteAddr::send) is told.
    pub fn try_send<M>(&self, message: M) -> Result<()>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.core.start(method::<A, M>().reference(), &message, None)
    }

    /// The address for one kind of message only.
    pub fn recipient<M>(&self) -> RemoteRecipient<M>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        RemoteRecipient {
            core: self.core.clone(),
            method: method::<A, M>().reference(),
            message: PhantomData,
        }
    }

    /// Whether the actor may be there: `false` only if this process knows that it is gone for good.
    pub fn connected(&self) -> bool {
        self.core.connected()
    }

    /// Waits until the actor has ended and will not be started again, and says why it ended.
    pub fn ended(&self) -> Reply<ExitReason> {
        let core = self.core.clone();
        Reply::new(async move {
            let runtime = core.runtime()?;
            let question = Question::Ended { actor: core.target.actor };
            Ok(on_node(runtime, move || async move {
                runtime.mesh().ask(&core.target.runtime, question).await
            })
            .await
            .unwrap_or_else(|reason| reason))
        })
    }

    /// Tells `recipient` of the end of each incarnation, wherever the actor is, from when the reply
    /// is there.
    pub fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        let core = self.core.clone();
        let (watching, watched) = oneshot::channel();
        let runtime = core.runtime();
        if let Ok(runtime) = &runtime {
            let runtime = *runtime;
            runtime.spawn(move || async move {
                watch(runtime, &core.target, &recipient, watching).await
            });
        }
        Reply::new(async move {
            runtime?;
            // Dropped, the recipient has been told of the end already.
            let _ = watched.await;
            Ok(())
        })
    }
}

/// Runs a future on the node's thread and waits for what it gives.
async fn on_node<T: Send + 'static, F: Future<Output = Result<T, ExitReason>> + 'static>(
    runtime: &'static Runtime,
    future: impl FnOnce() -> F + Send + 'static,
) -> Result<T, ExitReason> {
    let (sender, value) = oneshot::channel();
    runtime.spawn(move || async move { drop(sender.send(future().await)) });
    value.await.unwrap_or_else(|_| Err(ExitReason::LinkLost("this process ends".into())))
}

async fn watch(
    runtime: &'static Runtime,
    target: &Target,
    recipient: &Recipient<Down>,
    watching: oneshot::Sender<()>,
) {
    let mut incarnation = match runtime
        .mesh()
        .ask::<u64>(&target.runtime, Question::Incarnation { actor: target.actor })
        .await
    {
        Ok(current) => current,
        Err(reason) => return tell(target, recipient, reason),
    };
    let _ = watching.send(());
    loop {
        let end = match target.owned {
            true => {
                runtime
                    .mesh()
                    .ask::<End>(
                        &target.runtime,
                        Question::Fate { actor: target.actor, incarnation },
                    )
                    .await
            }
            false => {
                let reason = runtime
                    .mesh()
                    .ask(&target.runtime, Question::Ended { actor: target.actor })
                    .await;
                reason.map(|reason| End { reason, incarnation, gone: true })
            }
        };
        match end {
            Ok(end) => {
                tell(target, recipient, end.reason);
                incarnation = end.incarnation + 1;
                if end.gone || !recipient.connected() {
                    return;
                }
            }
            Err(reason) => return tell(target, recipient, reason),
        }
    }
}

fn tell(target: &Target, recipient: &Recipient<Down>, reason: ExitReason) {
    recipient.do_send(Down { name: target.name.to_string(), reason });
}

impl<M: RemoteMessage> RemoteRecipient<M> {
    /// As [`RemoteAddr::send`].
    pub fn send(&self, message: M) -> Call<M::Result> {
        self.core.call(self.method, &message, None)
    }

    /// As [`RemoteAddr::do_send`].
    pub fn do_send(&self, message: M) {
        self.core.tell(self.method, &message);
    }

    /// As [`RemoteAddr::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&self, message: M) -> Result<()> {
        self.core.start(self.method, &message, None)
    }

    /// As [`RemoteAddr::connected`].
    pub fn connected(&self) -> bool {
        self.core.connected()
    }
}

impl Core {
    /// This process's node, if the address is of its session.
    fn runtime(&self) -> Result<&'static Runtime> {
        Runtime::of_session(self.target.session, &self.target.name)
    }

    fn route(&self, runtime: &'static Runtime) -> &Arc<Route> {
        self.route.get_or_init(|| runtime.mesh().route(&self.target.runtime, self.target.actor))
    }

    fn connected(&self) -> bool {
        let Ok(runtime) = self.runtime() else { return false };
        let target = &*self.target;
        if target.owned {
            return self.route(runtime).is_open();
        }
        if target.runtime.id == runtime.id() {
            return runtime.registry().inbox(target.actor).is_some_and(|inbox| inbox.is_open());
        }
        !runtime.mesh().channel(&target.runtime).is_closed()
    }

    fn call<M: RemoteMessage>(
        &self,
        method: EntryRef,
        message: &M,
        load: Option<Load>,
    ) -> Call<M::Result> {
        let (sender, answer) = oneshot::channel();
        let sent = self.start(method, message, Some((sender, load)));
        Call::new::<M>(&self.target.name, sent.map(|()| answer))
    }

    fn tell<M: RemoteMessage>(&self, method: EntryRef, message: &M) {
        if let Err(error) = self.start(method, message, None) {
            tracing::debug!("a message that wanted no answer was not sent: {error}");
        }
    }

    fn start<M: RemoteMessage>(
        &self,
        method: EntryRef,
        message: &M,
        answer: Option<(oneshot::Sender<Answer>, Option<Load>)>,
    ) -> Result<()> {
        let runtime = self.runtime()?;
        let target = &*self.target;
        let actor = if target.owned { ActorId::HOSTED } else { target.actor };
        let encode = || Payload::call(actor, method, message);
        let (payload, keep_alive) = if answer.is_some() {
            transfer::repeatable(encode)
        } else {
            (transfer::once(encode), KeepAlive::default())
        };
        let payload = payload?;
        let limit = runtime.config().max_message.as_u64();
        codec::check_size(payload.len(), limit, || {
            format!("a message of type `{}`", std::any::type_name::<M>())
        })?;
        let pending = answer.map(|(sender, load)| Pending {
            waiter: match self.timeout {
                Some(limit) => runtime.mesh().deadlines().within(limit, sender),
                None => Waiter::Patient(sender),
            },
            route: None,
            again: (self.resend && target.owned).then(|| payload.clone()),
            load,
            _keep_alive: keep_alive,
        });
        if target.owned {
            runtime.mesh().send(self.route(runtime), payload, pending);
            return Ok(());
        }
        let Err(refused) = runtime.mesh().channel(&target.runtime).send(payload, pending) else {
            return Ok(());
        };
        match refused.pending {
            Some(pending) => {
                pending.tell(Err(Unanswered::Lost(refused.reason)));
                Ok(())
            }
            None => Err(stopped(&target.name, refused.reason)),
        }
    }
}

impl<A> Clone for RemoteAddr<A> {
    fn clone(&self) -> RemoteAddr<A> {
        RemoteAddr { core: self.core.clone(), actor: PhantomData }
    }
}

impl<M> Clone for RemoteRecipient<M> {
    fn clone(&self) -> RemoteRecipient<M> {
        RemoteRecipient { core: self.core.clone(), method: self.method, message: PhantomData }
    }
}

/// Two addresses are equal if they are of the same actor.
impl<A> PartialEq for RemoteAddr<A> {
    fn eq(&self, other: &RemoteAddr<A>) -> bool {
        self.core.target == other.core.target
    }
}

impl<A> Eq for RemoteAddr<A> {}

impl<A> Hash for RemoteAddr<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.core.target.runtime.id, self.core.target.actor).hash(state);
    }
}

impl<M> PartialEq for RemoteRecipient<M> {
    fn eq(&self, other: &RemoteRecipient<M>) -> bool {
        self.core.target == other.core.target && self.method == other.method
    }
}

impl<M> Eq for RemoteRecipient<M> {}

impl<A> fmt::Debug for RemoteAddr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.core.target;
        write!(f, "RemoteAddr({} {} at {})", target.name, target.actor.0, target.runtime.id)
    }
}

impl<M> fmt::Debug for RemoteRecipient<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteRecipient({})", self.core.target.name)
    }
}

impl<A> Serialize for RemoteAddr<A> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.core.serialize(serializer)
    }
}

impl<'de, A> Deserialize<'de> for RemoteAddr<A> {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RemoteAddr<A>, D::Error> {
        Ok(RemoteAddr { core: Core::deserialize(deserializer)?, actor: PhantomData })
    }
}

impl<M> Serialize for RemoteRecipient<M> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.core, self.method).serialize(serializer)
    }
}

impl<'de, M> Deserialize<'de> for RemoteRecipient<M> {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RemoteRecipient<M>, D::Error> {
        let (core, method) = Deserialize::deserialize(deserializer)?;
        Ok(RemoteRecipient { core, method, message: PhantomData })
    }
}
