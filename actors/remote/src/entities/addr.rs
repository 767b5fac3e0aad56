//! Addresses of entities: of all of them, and of the one of a key.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Context, Handler};
use fiber_core::{Error, Result};
use fiber_runtime::directory::Member;
use fiber_runtime::mesh::{ActorId, CallFailure, Payload, Terms, Waiter, current_deadline};
use fiber_runtime::reply::{PendingCall, Reply};
use fiber_supervisor::current_actor;
use fiber_values::codec;
use fiber_values::transfer::{self, KeepAlive};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

use super::Entities;
use super::client::{Client, Outgoing};
use super::coordinator::Coordinator;
use super::life::own_addr;
use super::method::Method;
use super::reminders::Reminder;
use super::wire::{Remind, RemindFailure, When};
use crate::names::{Wanted, look_up};
use crate::remote::{RemoteAddr, RemoteMessage, UntypedAddr, unheard};

/// The address of all entities that [`Entities`] has started, in any process of the session.
///
/// It travels: as an argument of a task, a field of a message, an element of a queue.
/// [`find_entities`] returns it by the name.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// use fiber::Pool;
/// use fiber::entities::{Entities, EntitiesAddr};
///
/// let pages = Entities::builder("pages").processes(2).start(|_: String, ()| Counter(0), ());
/// let pages = pages.wait()?;
/// let view = |(pages, page): (EntitiesAddr<Counter>, String)| pages.of(page).send(Add(1)).wait();
/// let views = ["home", "news", "home"].map(|page| (pages.addr(), page.to_string()));
/// Pool::new(2)?.try_map(view, views).wait()?;
/// assert_eq!(pages.of("home").send(Add(0)).wait()?, 2);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct EntitiesAddr<A> {
    client: Arc<Client>,
    entity: PhantomData<fn() -> A>,
}

/// The address of the entity of a key. The entity is there when it gets a message.
///
/// It travels as [`EntitiesAddr`] does, which has an example, and so does [`Entities`].
pub struct Entity<A> {
    client: Arc<Client>,
    key: Arc<str>,
    /// For errors.
    name: Arc<str>,
    resend: bool,
    entity: PhantomData<fn() -> A>,
}

/// Returns the address of the entities that have a name, in any process of the session.
///
/// # Errors
/// As [`find`](crate::names::find).
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// use fiber::entities::{Entities, find_entities};
///
/// let users = Entities::builder("users").processes(1).start(|_: String, ()| Counter(0), ());
/// let _users = users.wait()?;
/// let log_in = |user: String| find_entities::<Counter>("users").wait()?.of(user).send(Add(1)).wait();
/// assert_eq!(fiber::Pool::new(1)?.try_map(log_in, ["anna".to_string()]).wait()?, [1]);
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn find_entities<A: Actor<Context = Context<A>>>(name: &str) -> Reply<EntitiesAddr<A>> {
    let name_of_client: Arc<str> = name.into();
    let found = look_up(name, Wanted::Now, coordinator::<A>);
    Reply::begun(async move { EntitiesAddr::new(name_of_client, found.await?) })
}

/// Returns the address of the entity of type `A` whose code runs on this thread.
///
/// It works in its handlers and the futures that they return, in `started` and `stopped`, and in
/// timers and futures in its context. A handler that waits for the answer of its own entity makes
/// that busy for ever: let a future of the context wait.
///
/// # Errors
/// [`Error::Invalid`] if no such entity runs on this thread.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::time::Duration;
///
/// use fiber::entities::{Entities, Reminder, this};
/// use fiber::prelude::*;
///
/// /// Closes some time after it was opened, also if it sleeps until then.
/// struct Auction {
///     is_open: bool,
/// }
///
/// impl Actor for Auction {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::message]
/// struct Open;
///
/// #[fiber::message(bool)]
/// struct IsOpen;
///
/// #[fiber::handlers]
/// impl Auction {
///     fn open(&mut self, _: Open) {
///         self.is_open = true;
///         let own = this::<Auction>().expect("it is an entity");
///         drop(own.remind("close", Duration::from_millis(20)));
///     }
///
///     fn is_open(&mut self, _: IsOpen) -> bool {
///         self.is_open
///     }
///
///     fn close(&mut self, _: Reminder) {
///         self.is_open = false;
///     }
/// }
///
/// let auctions = Entities::builder("auctions").processes(1).reminders();
/// let auctions = auctions.start(|_: String, ()| Auction { is_open: false }, ()).wait()?;
/// auctions.of(7).send(Open).wait()?;
/// while auctions.of(7).send(IsOpen).wait()? {}
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn this<A: Actor<Context = Context<A>>>() -> Result<Entity<A>> {
    let own = own_addr().transpose()?.and_then(|own| own.downcast::<Entity<A>>().ok());
    own.map(|own| *own).ok_or_else(|| {
        let problem = format!("no entity of type `{}` runs on this thread", type_name::<A>());
        Error::invalid("entities::this", problem)
    })
}

/// A coordinator of entities of type `A`.
fn coordinator<A: Actor<Context = Context<A>>>(
    member: &Member,
    addr: UntypedAddr,
) -> Option<RemoteAddr<Coordinator>> {
    let is_of_type = member.actor_type.as_deref() == Some(type_name::<Entities<A>>());
    is_of_type.then(|| RemoteAddr::of(addr))
}

impl<A: Actor> EntitiesAddr<A> {
    pub(super) fn new(
        name: Arc<str>,
        coordinator: RemoteAddr<Coordinator>,
    ) -> Result<EntitiesAddr<A>> {
        Ok(EntitiesAddr { client: Client::of(name, coordinator)?, entity: PhantomData })
    }

    /// Returns the name of the entities.
    pub fn name(&self) -> &str {
        &self.client.name
    }

    /// Returns the address of the entity of a key, which is any text or number. It sends nothing.
    /// [`EntitiesAddr`] has an example.
    pub fn of(&self, key: impl ToString) -> Entity<A> {
        let key: Arc<str> = key.to_string().into();
        let name = format!("{}/{key}", self.client.name).into();
        let client = Arc::clone(&self.client);
        Entity { client, key, name, resend: false, entity: PhantomData }
    }
}

impl<A: Actor<Context = Context<A>>> Entity<A> {
    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Sends a message, and returns the answer's future. The entity starts if it sleeps.
    /// [`Entities`] has an example.
    ///
    /// The message is sent at once, whether or not the reply is awaited. It waits while the key
    /// moves from one process to another. A message that a handler sends has the
    /// [deadline](crate::remote::deadline) of the request that it handles.
    ///
    /// # Errors
    /// [`Error::ActorStopped`] if the process of the entity dies before it answers, but for an
    /// address that [resends](Entity::resend); [`Error::Call`] if the handler, or the start of the
    /// entity, panics; [`Error::TimedOut`] at the deadline; [`Error::Journal`]; [`Error::Encode`] or
    /// [`Error::TooLarge`].
    pub fn send<M>(&self, message: M) -> Reply<M::Result>
    where
        A: Handler<M>,
        M: RemoteMessage,
    {
        let runtime = self.client.runtime;
        let deadline = current_deadline();
        let time_left = deadline.map(|time| time.saturating_duration_since(Instant::now()));
        let (payload, keep_alive) = match self.encode(time_left, &message) {
            Ok(encoded) => encoded,
            Err(error) => return Reply::failed(error),
        };
        let (sender, answered) = oneshot::channel();
        let answer = match time_left {
            Some(limit) => runtime.mesh().deadlines().within(limit, sender),
            None => Waiter::Sender(sender),
        };
        let outgoing = Outgoing { payload, answer, deadline, resend: self.resend, keep_alive };
        self.client.send(&self.key, outgoing);
        let message = type_name::<M>();
        Reply::call(PendingCall::new(answered, &self.name, message, current_actor()))
    }

    /// Sends a message, and ignores its answer and all errors. A message that is not delivered is a
    /// [dead letter](fiber_core::stats::EventKind::DeadLetters) of the entities.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let users = fiber::Entities::builder("visitors").processes(1);
    /// let users = users.start(|_: String, ()| Counter(0), ()).wait()?;
    /// users.of(7).do_send(Add(2));
    /// assert_eq!(users.of(7).send(Add(1)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn do_send<M>(&self, message: M)
    where
        A: Handler<M>,
        M: RemoteMessage,
    {
        let (runtime, entities) = (self.client.runtime, &self.client.name);
        match self.encode(None, &message) {
            Ok((payload, keep_alive)) => {
                let (answer, resend) = (unheard(runtime, Arc::clone(entities)), self.resend);
                let outgoing = Outgoing { payload, answer, deadline: None, resend, keep_alive };
                self.client.send(&self.key, outgoing);
            }
            Err(error) => runtime.dead_letters().note(entities, 1, error),
        }
    }

    /// Returns the address with which messages are sent again if the process of the entity dies
    /// before the answer: it may handle them twice. [`EventSourced`](super::EventSourced) has an
    /// example.
    #[must_use = "the address itself stays as it is"]
    pub fn resend(&self) -> Entity<A> {
        Entity { resend: true, ..self.clone() }
    }

    /// Lets the entity get [`Reminder`] after a time, also if it sleeps until then.
    ///
    /// A reminder of the same name is replaced. The reply is ready when the reminder counts: in a
    /// [durable](super::EntitiesBuilder::durable) journal it also outlives the program. It comes
    /// until it was handled, so it may come twice, and late if the program does not run at its
    /// time.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the entities were not started with
    /// [`reminders`](super::EntitiesBuilder::reminders); [`Error::Journal`]; [`Error::ActorStopped`]
    /// if the process that owns the entities can't be reached.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use std::time::Duration;
    ///
    /// use fiber::Entities;
    /// use fiber::entities::Reminder;
    ///
    /// #[fiber::handlers]
    /// impl Counter {
    ///     fn reminder(&mut self, _: Reminder) {
    ///         self.0 += 100;
    ///     }
    /// }
    ///
    /// let users = Entities::builder("bills").processes(1).reminders();
    /// let users = users.start(|_: String, ()| Counter(0), ()).wait()?;
    /// users.of("anna").remind("pay", Duration::from_millis(20)).wait()?;
    /// while users.of("anna").send(Add(0)).wait()? < 100 {}
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn remind(&self, name: &str, after: Duration) -> Reply<()>
    where
        A: Handler<Reminder>,
    {
        self.set_reminder(name, Some(When { after: millis(after), every: None }))
    }

    /// Lets the entity get [`Reminder`] again and again, the first time after `period`. See
    /// [`remind`](Entity::remind). Times that pass while one is handled, or the program does not
    /// run, are left out.
    ///
    /// # Errors
    /// As [`remind`](Entity::remind); [`Error::Invalid`] if the period is 0.
    pub fn remind_every(&self, name: &str, period: Duration) -> Reply<()>
    where
        A: Handler<Reminder>,
    {
        let period = millis(period);
        if period == 0 {
            let problem = "a reminder that comes again needs at least 1 ms from one to the next";
            return Reply::failed(Error::invalid("Entity::remind_every", problem));
        }
        self.set_reminder(name, Some(When { after: period, every: Some(period) }))
    }

    /// Removes a reminder. Nothing happens if there is none of this name.
    ///
    /// # Errors
    /// As [`remind`](Entity::remind).
    pub fn forget_reminder(&self, name: &str) -> Reply<()>
    where
        A: Handler<Reminder>,
    {
        self.set_reminder(name, None)
    }

    fn set_reminder(&self, name: &str, when: Option<When>) -> Reply<()> {
        let remind = Remind { key: self.key.to_string(), name: name.into(), when };
        let set = self.client.coordinator.send(remind);
        Reply::begun(async move {
            set.await?.map_err(|failure| match failure {
                RemindFailure::None => Error::invalid(
                    "Entity::remind",
                    "the entities have no reminders: start them with \
                     `Entities::builder(..).reminders()`",
                ),
                RemindFailure::Journal(CallFailure::Journal { journal, cause }) => {
                    CallFailure::journal_error(journal, cause)
                }
                RemindFailure::Journal(failure) => {
                    Error::system("recording a reminder failed", format!("{failure:?}"))
                }
            })
        })
    }

    fn encode<M>(&self, time_left: Option<Duration>, message: &M) -> Result<(Payload, KeepAlive)>
    where
        A: Handler<M>,
        M: RemoteMessage,
    {
        let method = Method::<A, M>::ENTRY.reference();
        let terms = Terms { urgent: false, time_left };
        let encode = || Payload::call(ActorId::LATER, method, terms, &(&*self.key, message));
        let (payload, keep_alive) = transfer::repeatable(encode);
        let payload = payload?;
        let limit = self.client.runtime.config().max_message.as_u64();
        codec::check_size(payload.size(), limit, || {
            format!("a message of type `{}`", type_name::<M>())
        })?;
        Ok((payload, keep_alive))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

clone_handle!(EntitiesAddr<A> { client, entity });

clone_handle!(Entity<A> { client, key, name, resend, entity });

/// Two addresses are equal if they are of the same entity.
impl<A> PartialEq for Entity<A> {
    fn eq(&self, other: &Entity<A>) -> bool {
        Arc::ptr_eq(&self.client, &other.client) && self.key == other.key
    }
}

impl<A> Eq for Entity<A> {}

impl<A> fmt::Debug for EntitiesAddr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntitiesAddr({})", self.client.name)
    }
}

impl<A> fmt::Debug for Entity<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entity({})", self.name)
    }
}

impl<A> Serialize for EntitiesAddr<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&*self.client.name, &self.client.coordinator).serialize(serializer)
    }
}

impl<'de, A: Actor> Deserialize<'de> for EntitiesAddr<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EntitiesAddr<A>, D::Error> {
        let (name, coordinator): (String, _) = Deserialize::deserialize(deserializer)?;
        EntitiesAddr::new(name.into(), coordinator).map_err(serde::de::Error::custom)
    }
}

impl<A> Serialize for Entity<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = EntitiesAddr::<A> { client: Arc::clone(&self.client), entity: PhantomData };
        (all, &*self.key, self.resend).serialize(serializer)
    }
}

impl<'de, A: Actor<Context = Context<A>>> Deserialize<'de> for Entity<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entity<A>, D::Error> {
        let (all, key, resend): (EntitiesAddr<A>, String, _) =
            Deserialize::deserialize(deserializer)?;
        Ok(Entity { resend, ..all.of(key) })
    }
}
