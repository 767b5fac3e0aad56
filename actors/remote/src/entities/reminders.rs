//! Reminders: messages that entities get at a time, also if they sleep until then.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix::{Actor, Context, Handler, Message};
use fiber_core::Result;
use fiber_core::inspect::RecordedReminder;
use fiber_runtime::mesh::Alarm;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use futures_util::future::select;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::coordinator::Coordination;
use super::records::Records;
use super::wire::{Remind, RemindFailure, When};

/// After this time, a reminder that was not handled comes again.
const AGAIN: Duration = Duration::from_secs(5);

/// The message of a reminder. [`Entity::remind`](super::Entity::remind) has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reminder {
    /// The name that [`remind`](super::Entity::remind) has given it.
    pub name: String,
}

impl Message for Reminder {
    type Result = ();
}

/// Whether entities of type `A` have reminders: [`NoReminders`] for any actor, [`WithReminders`] for
/// those that handle [`Reminder`].
pub trait ReminderPolicy<A: Actor>: 'static {
    /// Sends the message of a reminder.
    #[doc(hidden)]
    const FIRE: Option<Fire<A>>;
}

#[doc(hidden)]
pub type Fire<A> = fn(&super::EntitiesAddr<A>, &str, Reminder) -> Reply<()>;

/// The policy of entities without reminders.
#[derive(Clone, Copy, Debug)]
pub struct NoReminders;

/// The policy of entities with reminders. From
/// [`EntitiesBuilder::reminders`](super::EntitiesBuilder::reminders).
#[derive(Clone, Copy, Debug)]
pub struct WithReminders;

impl<A: Actor> ReminderPolicy<A> for NoReminders {
    const FIRE: Option<Fire<A>> = None;
}

impl<A> ReminderPolicy<A> for WithReminders
where
    A: Actor<Context = Context<A>> + Handler<Reminder>,
{
    const FIRE: Option<Fire<A>> = Some(|entities, key, reminder| entities.of(key).send(reminder));
}

/// A reminder as it is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    key: String,
    name: String,
    /// In milliseconds since 1970.
    due: u64,
    every: Option<u64>,
}

impl Entry {
    fn recorded(&self) -> RecordedReminder {
        RecordedReminder {
            name: self.name.clone(),
            due: UNIX_EPOCH + Duration::from_millis(self.due),
            every: self.every.map(|every| every as f64 / 1000.0),
        }
    }
}

/// Sends the message of a reminder to the entity of a key, if the entities are started.
pub(super) type SendReminder = Box<dyn Fn(&str, Reminder) -> Option<Reply<()>>>;

/// The reminders of some entities, at their coordinator.
pub(super) struct Reminders {
    send: Option<SendReminder>,
    entries: RefCell<Entries>,
    changed: Notify,
    is_over: Cell<bool>,
}

#[derive(Default)]
struct Entries {
    by_number: HashMap<u64, Entry>,
    by_name: HashMap<(String, String), u64>,
    /// When to send which, in milliseconds since 1970.
    times: BTreeSet<(u64, u64)>,
    last: u64,
}

impl Reminders {
    pub(super) fn new(send: Option<SendReminder>) -> Reminders {
        let (entries, changed) = (RefCell::default(), Notify::new());
        Reminders { send, entries, changed, is_over: Cell::new(false) }
    }

    /// Takes the reminders that an earlier run of the program has recorded.
    pub(super) fn restore(&self, records: &Records) -> Result<()> {
        let entries = &mut *self.entries.borrow_mut();
        for (number, entry) in records.reminders()? {
            entries.last = entries.last.max(number);
            entries.insert(number, entry);
        }
        Ok(())
    }

    /// Sets or removes a reminder. It counts when it is recorded.
    pub(super) async fn set(&self, records: &Records, remind: Remind) -> Result<(), RemindFailure> {
        if self.send.is_none() {
            return Err(RemindFailure::None);
        }
        let Remind { key, name, when } = remind;
        let entry = when.map(|When { after, every }| {
            let due = now().saturating_add(after);
            Entry { key: key.clone(), name: name.clone(), due, every }
        });
        let number = {
            let entries = &mut *self.entries.borrow_mut();
            let number = match entries.by_name.get(&(key.clone(), name.clone())).copied() {
                Some(number) => number,
                None if entry.is_none() => return Ok(()),
                None => {
                    entries.last += 1;
                    entries.by_name.insert((key, name), entries.last);
                    entries.last
                }
            };
            entries.remove(number);
            if let Some(entry) = entry.clone() {
                entries.insert(number, entry);
            }
            number
        };
        self.changed.notify_one();
        records.remind(number, entry.as_ref()).await.map_err(RemindFailure::Journal)
    }

    /// Returns the keys that begin with this and have reminders, and how many.
    pub(super) fn counts(&self, prefix: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for Entry { key, .. } in self.entries.borrow().by_number.values() {
            if key.starts_with(prefix) {
                *counts.entry(key.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// Returns the reminders of a key, by their names.
    pub(super) fn of_key(&self, key: &str) -> Vec<RecordedReminder> {
        let entries = self.entries.borrow();
        let of_key = entries.by_number.values().filter(|entry| entry.key == key);
        let mut reminders: Vec<_> = of_key.map(Entry::recorded).collect();
        reminders.sort_by(|one, other| one.name.cmp(&other.name));
        reminders
    }

    /// Ends [`run`](Reminders::run).
    pub(super) fn stop(&self) {
        self.is_over.set(true);
        self.changed.notify_one();
    }
}

/// Sends reminders when they are due, until the coordinator ends.
pub(super) async fn run(coordination: Rc<Coordination>, runtime: &'static Runtime) {
    let reminders = &coordination.reminders;
    while !reminders.is_over.get() {
        let next = reminders.entries.borrow().times.first().copied();
        let Some((time, number)) = next else {
            reminders.changed.notified().await;
            continue;
        };
        if let Some(pause) = time.checked_sub(now()).filter(|pause| *pause > 0) {
            // The wall clock may jump, so it looks again now and then.
            let pause = Duration::from_millis(pause).min(Duration::from_secs(60));
            let alarm = pin!(Alarm::after(runtime.mesh(), pause));
            let changed = pin!(reminders.changed.notified());
            let _ = select(alarm, changed).await;
            continue;
        }
        let due = {
            let entries = &mut *reminders.entries.borrow_mut();
            entries.times.remove(&(time, number));
            entries.by_number.get(&number).cloned()
        };
        if let Some(entry) = due {
            let coordination = Rc::clone(&coordination);
            drop(fiber_core::spawn_local(async move { fire(&coordination, number, entry).await }));
        }
    }
}

/// Sends a reminder. One that was handled is over, or comes again after its time.
async fn fire(coordination: &Coordination, number: u64, entry: Entry) {
    let reminders = &coordination.reminders;
    let message = Reminder { name: entry.name.clone() };
    let sent = reminders.send.as_ref().and_then(|send| send(&entry.key, message));
    let Some(sent) = sent else { return };
    let handled = sent.await;
    let next = match (&handled, entry.every) {
        (Ok(()), None) => None,
        // Times that have passed meanwhile are left out.
        (Ok(()), Some(every)) => Some((entry.due.saturating_add(every)).max(now())),
        (Err(_), _) => Some(now() + AGAIN.as_millis() as u64),
    };
    let changed = {
        let entries = &mut *reminders.entries.borrow_mut();
        let is_same = |known: &Entry| known.due == entry.due && known.every == entry.every;
        if !entries.by_number.get(&number).is_some_and(is_same) {
            // It was set anew, or removed, meanwhile.
            return;
        }
        entries.remove(number);
        next.map(|due| {
            let entry = Entry { due, ..entry.clone() };
            entries.by_name.insert((entry.key.clone(), entry.name.clone()), number);
            entries.insert(number, entry.clone());
            entry
        })
    };
    reminders.changed.notify_one();
    match handled {
        Ok(()) => {
            if let Err(problem) = coordination.records.remind(number, changed.as_ref()).await {
                tracing::error!("the reminders of entities can't be recorded: {problem:?}");
            }
        }
        Err(error) => {
            let (key, name) = (&entry.key, &entry.name);
            tracing::warn!("reminder `{name}` of entity `{key}` comes again in {AGAIN:?}: {error}");
        }
    }
}

impl Entries {
    fn insert(&mut self, number: u64, entry: Entry) {
        self.times.insert((entry.due, number));
        self.by_name.insert((entry.key.clone(), entry.name.clone()), number);
        self.by_number.insert(number, entry);
    }

    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.by_number.remove(&number) {
            self.times.remove(&(entry.due, number));
            self.by_name.remove(&(entry.key, entry.name));
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
