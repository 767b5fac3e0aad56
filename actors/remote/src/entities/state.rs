//! The state of entities that outlives them: snapshots, and events.

use actix::Actor;
use fiber_core::{Error, Result};
use fiber_values::codec::EncodedValue;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::life;
use crate::manager::{NoSnapshots, Snapshot, SnapshotPolicy, Snapshots};

/// An actor whose state is the sum of its events. Each event is recorded, and the state is made
/// again from the record.
///
/// A handler checks its message against the state, and calls [`persist`](EventSourced::persist)
/// with what has happened. That changes the state by [`apply`](EventSourced::apply). The answer
/// goes out when the event is recorded, as do all later answers of the entity, so nobody sees what
/// a crash could take back.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/account.md")]
/// let accounts = fiber::Entities::builder("accounts").processes(2).events();
/// let accounts = accounts.start(|_: String, ()| Account::default(), ()).wait()?;
/// let anna = accounts.of("anna");
/// assert_eq!(anna.send(Deposit(5)).wait()?, 5);
/// accounts.kill_processes();
/// assert_eq!(anna.resend().send(Deposit(0)).wait()?, 5);
/// # Ok::<(), fiber::Error>(())
/// ```
pub trait EventSourced: Actor + Sized {
    /// The events of the actor: all changes of its state.
    type Event: Serialize + DeserializeOwned + 'static;

    /// The version of [`Event`](EventSourced::Event)'s form. Raise it when the form changes, and
    /// let [`upcast`](EventSourced::upcast) read the earlier ones.
    const VERSION: u32 = 1;

    /// Changes the state. It runs when the event happens, and each time that the actor is made
    /// again: it may depend on the state and the event alone, and does nothing else.
    fn apply(&mut self, event: Self::Event);

    /// Reads an event of another version.
    ///
    /// # Errors
    /// The version is not known, which is what it returns by default: the entity does not start,
    /// and its messages fail.
    ///
    /// # Examples
    /// ```
    /// use fiber::entities::{EventSourced, RecordedEvent};
    /// use fiber::prelude::*;
    /// use serde::{Deserialize, Serialize};
    ///
    /// struct Account(i64);
    ///
    /// impl Actor for Account {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Deposited {
    ///     cents: i64,
    /// }
    ///
    /// impl EventSourced for Account {
    ///     type Event = Deposited;
    ///
    ///     const VERSION: u32 = 2;
    ///
    ///     fn apply(&mut self, event: Deposited) {
    ///         self.0 += event.cents;
    ///     }
    ///
    ///     fn upcast(event: RecordedEvent<'_>) -> fiber::Result<Deposited> {
    ///         match event.version() {
    ///             // It was in whole euros.
    ///             1 => event.decode::<i64>().map(|euros| Deposited { cents: 100 * euros }),
    ///             _ => Err(event.unknown_version()),
    ///         }
    ///     }
    /// }
    /// ```
    fn upcast(event: RecordedEvent<'_>) -> Result<Self::Event> {
        Err(event.unknown_version())
    }

    /// Records an event, and applies it. [`EventSourced`] has an example.
    ///
    /// Call it within the actor: in a handler, in `started`, or in a future or a timer of the
    /// actor's context. An actor that was started by other means than
    /// [`Entities`](super::Entities), as in a test, applies the event alone.
    ///
    /// # Panics
    /// If the event can't be encoded, or the entities were not started with
    /// [`events`](super::EntitiesBuilder::events). The state is as before then.
    fn persist(&mut self, event: Self::Event) {
        life::record(|| EncodedValue::new(&(Self::VERSION, &event)));
        self.apply(event);
    }
}

/// An event as it was recorded. [`EventSourced::upcast`] has an example.
#[derive(Clone, Copy, Debug)]
pub struct RecordedEvent<'a> {
    version: u32,
    value: &'a EncodedValue,
}

impl RecordedEvent<'_> {
    /// Returns the [`VERSION`](EventSourced::VERSION) with which it was recorded.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Reads the event.
    ///
    /// # Errors
    /// It is of another type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        self.value.decode::<(u32, T)>().map(|(_, event)| event)
    }

    /// Returns the error of a version that the program does not know.
    pub fn unknown_version(&self) -> Error {
        let problem = format!(
            "an event was recorded in version {}, which this program can't read: implement \
             `EventSourced::upcast` for it",
            self.version
        );
        Error::invalid("EventSourced::upcast", problem)
    }
}

/// The state of entities that only their events keep. From
/// [`EntitiesBuilder::events`](super::EntitiesBuilder::events).
#[derive(Clone, Copy, Debug)]
pub struct Events;

/// The state of entities that events and snapshots keep. From
/// [`EntitiesBuilder::events_and_snapshots`](super::EntitiesBuilder::events_and_snapshots).
#[derive(Clone, Copy, Debug)]
pub struct EventsAndSnapshots;

/// The parts of an entity's state that are kept: nothing, snapshots, or events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)]
pub enum Kept {
    Nothing,
    Snapshots,
    Events,
}

/// How the state of entities of type `A` is kept: [`NoSnapshots`], [`Snapshots`], [`Events`] or
/// [`EventsAndSnapshots`].
pub trait EntityState<A>: SnapshotPolicy<A> {
    #[doc(hidden)]
    const KEPT: Kept;

    #[doc(hidden)]
    fn replay(actor: &mut A, event: &EncodedValue) -> Result<()>;
}

impl<A> EntityState<A> for NoSnapshots {
    const KEPT: Kept = Kept::Nothing;

    fn replay(_: &mut A, _: &EncodedValue) -> Result<()> {
        Ok(())
    }
}

impl<A: Snapshot> EntityState<A> for Snapshots {
    const KEPT: Kept = Kept::Snapshots;

    /// It was recorded by a program that kept events, too.
    fn replay(_: &mut A, _: &EncodedValue) -> Result<()> {
        Err(Error::invalid(
            "EntitiesBuilder::snapshots",
            "the record has events: start the entities with `events` or `events_and_snapshots`",
        ))
    }
}

impl<A: EventSourced> SnapshotPolicy<A> for Events {
    fn take(_: &A) -> Result<Option<EncodedValue>> {
        Ok(None)
    }

    /// It was recorded by a program that kept snapshots, too.
    fn restore(_: &mut A, _: &EncodedValue) -> Result<()> {
        Err(Error::invalid(
            "EntitiesBuilder::events",
            "the record has a snapshot: start the entities with `events_and_snapshots`",
        ))
    }
}

impl<A: EventSourced> EntityState<A> for Events {
    const KEPT: Kept = Kept::Events;

    fn replay(actor: &mut A, event: &EncodedValue) -> Result<()> {
        let (version, _): (u32, IgnoredAny) = event.decode()?;
        let event = RecordedEvent { version, value: event };
        actor.apply(if version == A::VERSION { event.decode()? } else { A::upcast(event)? });
        Ok(())
    }
}

impl<A: Snapshot> SnapshotPolicy<A> for EventsAndSnapshots {
    fn take(actor: &A) -> Result<Option<EncodedValue>> {
        <Snapshots as SnapshotPolicy<A>>::take(actor)
    }

    fn restore(actor: &mut A, state: &EncodedValue) -> Result<()> {
        <Snapshots as SnapshotPolicy<A>>::restore(actor, state)
    }
}

impl<A: EventSourced + Snapshot> EntityState<A> for EventsAndSnapshots {
    const KEPT: Kept = Kept::Events;

    fn replay(actor: &mut A, event: &EncodedValue) -> Result<()> {
        <Events as EntityState<A>>::replay(actor, event)
    }
}

/// A policy that keeps some state, which a journal can hold.
pub trait KeepsState {}

impl KeepsState for Snapshots {}
impl KeepsState for Events {}
impl KeepsState for EventsAndSnapshots {}
