//! A process that keeps entities: an actor that starts, moves and saves those of its keys.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, ResponseFuture};
use fiber_core::{Result, panics, spawn_local};
use fiber_runtime::mesh::CallFailure;
use fiber_runtime::runtime::{Runtime, report_panic};
use fiber_runtime::sources::Sources;
use fiber_values::codec::EncodedValue;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::addr::EntitiesAddr;
use super::coordinator::Coordinator;
use super::inspection::{AskLives, KeeperStats, Lives};
use super::life::{End, Live, Living, Work};
use super::state::Kept;
use super::termination;
use super::wire::{Change, Hello, KeeperId, Load, Record, Released, Table, Token, Write, failure};
use super::writes::Writes;
use crate::manager::SnapshotInterval;
use crate::remote::RemoteAddr;

/// The longest and the shortest pause between two looks for entities that are idle.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));

/// The options of entities, as their processes get them.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    /// After this time without a message, an entity sleeps.
    pub(super) idle: Option<Duration>,
    pub(super) kept: Kept,
    /// Counts events, or messages if there are no events.
    pub(super) snapshots: SnapshotInterval,
    /// The folder of the journal that has the state, if one has it.
    pub(super) journal: Option<String>,
}

/// The arguments of a process of entities.
#[derive(Serialize, Deserialize)]
pub(super) struct KeeperArgs {
    pub(super) coordinator: RemoteAddr<Coordinator>,
    pub(super) id: KeeperId,
    /// The name of the entities.
    pub(super) name: String,
    pub(super) plan: Plan,
    /// The arguments of the factory, beside the key.
    pub(super) arguments: EncodedValue,
}

/// The functions that know how the state of an actor is kept.
pub(super) struct StateFns<A> {
    pub(super) take: fn(&A) -> Result<Option<EncodedValue>>,
    pub(super) restore: fn(&mut A, &EncodedValue) -> Result<()>,
    pub(super) replay: fn(&mut A, &EncodedValue) -> Result<()>,
}

/// Makes an actor from a key and the encoded arguments.
pub(super) type Make<A> = fn(String, &EncodedValue) -> Result<A>;

/// See the module's documentation.
pub(super) struct Keeper<A: Actor<Context = Context<A>>>(Rc<Shared<A>>);

/// The state of a process of entities, which the entities share.
pub(super) struct Shared<A: Actor<Context = Context<A>>> {
    pub(super) plan: Plan,
    pub(super) state: StateFns<A>,
    coordinator: RemoteAddr<Coordinator>,
    id: KeeperId,
    make: Make<A>,
    arguments: EncodedValue,
    keys: RefCell<Keys<A>>,
    pub(super) living: Living<A>,
    pub(super) writes: Writes<A>,
    /// Notified when a key is free.
    freed: Notify,
    stats: Arc<KeeperStats>,
    keeper: OnceCell<Addr<Keeper<A>>>,
}

/// The keys of the process.
struct Keys<A: Actor<Context = Context<A>>> {
    /// Once the coordinator has answered.
    token: Option<Token>,
    table: Table,
    /// The table that is being prepared.
    next: Option<Table>,
    /// Keys whose entities another process has not saved yet.
    expected: HashSet<String>,
    /// Keys of another process, which were named as busy.
    leaving: HashSet<Rc<str>>,
    slots: HashMap<Rc<str>, Slot<A>>,
    /// Messages from before the coordinator's answer.
    early: Vec<(String, Work<A>)>,
    /// Keys that have arrived before that, with the numbers of the messages.
    arrived_early: Vec<(u64, Vec<String>)>,
}

/// A key that has messages.
enum Slot<A: Actor<Context = Context<A>>> {
    /// Its record is being read or written, or is expected.
    #[allow(clippy::box_collection, reason = "most keys live, and a slot is as large as this")]
    Waits(Box<VecDeque<Work<A>>>),
    Lives(Rc<Live<A>>),
}

impl<A: Actor<Context = Context<A>>> Keeper<A> {
    pub(super) fn new(args: KeeperArgs, make: Make<A>, state: StateFns<A>) -> Keeper<A> {
        let keys = Keys {
            token: None,
            table: Table::default(),
            next: None,
            expected: HashSet::new(),
            leaving: HashSet::new(),
            slots: HashMap::new(),
            early: Vec::new(),
            arrived_early: Vec::new(),
        };
        Keeper(Rc::new(Shared {
            plan: args.plan,
            state,
            coordinator: args.coordinator,
            id: args.id,
            make,
            arguments: args.arguments,
            keys: RefCell::new(keys),
            living: Living::default(),
            writes: Writes::default(),
            freed: Notify::new(),
            stats: Arc::new(KeeperStats::new(args.name.into())),
            keeper: OnceCell::new(),
        }))
    }

    /// Gives a message to the entity of a key.
    pub(super) fn deliver(&self, key: String, work: Work<A>) {
        let mut keys = self.0.keys.borrow_mut();
        if keys.token.is_none() {
            keys.early.push((key, work));
            return;
        }
        drop(keys);
        self.0.deliver(key, work);
    }
}

impl<A: Actor<Context = Context<A>>> Actor for Keeper<A> {
    type Context = Context<Keeper<A>>;

    fn started(&mut self, context: &mut Context<Keeper<A>>) {
        let _ = self.0.keeper.set(context.address());
        if let Ok(runtime) = Runtime::get() {
            runtime.part::<Sources>().register(&self.0.stats);
            if runtime.config().signals {
                termination::listen(runtime, self.0.coordinator.clone(), self.0.id);
            }
        }
        let (shared, runs) = (Rc::clone(&self.0), Rc::clone(&self.0));
        drop(spawn_local(async move { shared.join().await }));
        drop(spawn_local(async move { runs.living.run().await }));
        let Some(idle) = self.0.plan.idle else { return };
        let pause = (idle / 8).clamp(LOOKS.0, LOOKS.1);
        context.run_interval(pause, move |keeper, _| {
            let Some(time) = Instant::now().checked_sub(idle) else { return };
            let keys = keeper.0.keys.borrow();
            for slot in keys.slots.values() {
                if let Slot::Lives(live) = slot {
                    live.sleep_if_idle_since(time);
                }
            }
        });
    }
}

impl<A: Actor<Context = Context<A>>> Handler<Change> for Keeper<A> {
    type Result = ResponseFuture<Vec<String>>;

    fn handle(&mut self, change: Change, _: &mut Context<Keeper<A>>) -> Self::Result {
        let shared = Rc::clone(&self.0);
        match change {
            Change::Prepare(next) => Box::pin(async move { shared.prepare(next).await }),
            Change::Commit { table, expected } => {
                shared.commit(table, expected);
                Box::pin(async { Vec::new() })
            }
            Change::Arrived { keys, number } => {
                shared.arrived(keys, number);
                Box::pin(async { Vec::new() })
            }
        }
    }
}

impl<A: Actor<Context = Context<A>>> Handler<AskLives> for Keeper<A> {
    type Result = Option<Lives>;

    fn handle(&mut self, ask: AskLives, _: &mut Context<Keeper<A>>) -> Option<Lives> {
        let keys = self.0.keys.borrow();
        let live = |(key, slot): (&Rc<str>, &Slot<A>)| match slot {
            Slot::Lives(live) if key.starts_with(&ask.prefix) => {
                Some((key.to_string(), live.unanswered() as u64))
            }
            _ => None,
        };
        let process = Runtime::get().ok()?.id();
        Some(Lives { process, keys: keys.slots.iter().filter_map(live).collect() })
    }
}

/// Ends a process that can't record, so that a new one reads what is recorded.
struct Quit;

impl Message for Quit {
    type Result = ();
}

impl<A: Actor<Context = Context<A>>> Handler<Quit> for Keeper<A> {
    type Result = ();

    fn handle(&mut self, _: Quit, context: &mut Context<Keeper<A>>) {
        context.stop();
    }
}

impl<A: Actor<Context = Context<A>>> Shared<A> {
    /// Returns the address of all entities.
    pub(super) fn entities(&self) -> Result<EntitiesAddr<A>> {
        EntitiesAddr::new(Arc::clone(&self.stats.name), self.coordinator.clone())
    }

    /// Tells the coordinator that the process has started, and takes messages from then on.
    async fn join(self: Rc<Self>) {
        let welcome = match self.coordinator.send(Hello(self.id)).await {
            Ok(welcome) => welcome,
            Err(error) => {
                // The process ends with its parent, which the coordinator is in.
                let early = std::mem::take(&mut self.keys.borrow_mut().early);
                early.into_iter().for_each(|(_, work)| work.fail(failure(&error)));
                return tracing::error!(
                    "the coordinator of its entities can't be reached: {error}"
                );
            }
        };
        let mut keys = self.keys.borrow_mut();
        keys.token = Some(welcome.token);
        let mut arrived = std::mem::take(&mut keys.arrived_early);
        if welcome.table.epoch >= keys.table.epoch {
            keys.table = welcome.table;
            arrived.retain(|(number, _)| *number > welcome.token.number);
            let has_arrived = |key: &String| arrived.iter().any(|(_, keys)| keys.contains(key));
            let expected = welcome.expected.into_iter().filter(|key| !has_arrived(key));
            keys.expected = expected.collect();
        }
        let early = std::mem::take(&mut keys.early);
        drop(keys);
        early.into_iter().for_each(|(key, work)| self.deliver(key, work));
    }

    fn deliver(self: &Rc<Self>, key: String, work: Work<A>) {
        let mut keys = self.keys.borrow_mut();
        let live = match keys.slots.get(&*key) {
            Some(Slot::Lives(live)) => Some(Rc::clone(live)),
            _ => None,
        };
        // Most are here by that alone.
        if live.as_ref().is_none_or(|live| !live.stays()) && !keys.are_here(&key, self.id) {
            drop(keys);
            return work.fail(CallFailure::Moved);
        }
        if let Some(live) = live {
            drop(keys);
            return live.push(work);
        }
        if let Some(Slot::Waits(waiting)) = keys.slots.get_mut(&*key) {
            return waiting.push_back(work);
        }
        let key: Rc<str> = key.into();
        keys.slots.insert(Rc::clone(&key), Slot::Waits(Box::new(VecDeque::from([work]))));
        if !keys.expected.contains(&*key) {
            drop(keys);
            self.begin(key);
        }
    }

    /// Reads the record of a key that waits, and starts its entity.
    fn begin(self: &Rc<Self>, key: Rc<str>) {
        if self.plan.kept == Kept::Nothing {
            return self.start(key, Ok(Record::default()));
        }
        let shared = Rc::clone(self);
        drop(spawn_local(async move {
            let token = shared.keys.borrow().token.expect("keys wait until it is there");
            let read = shared.coordinator.send(Load { token, key: key.to_string() }).await;
            let record = read.unwrap_or_else(|error| Err(failure(&error)));
            shared.start(key, record);
        }));
    }

    /// Starts the entity of a key that waits.
    fn start(self: &Rc<Self>, key: Rc<str>, record: Result<Record, CallFailure>) {
        let made = record.and_then(|record| {
            let made = panics::catch(|| self.made(&key, &record));
            let made = made.map_err(|panic| CallFailure::Failed(report_panic(panic)))?;
            let actor = made.map_err(|error| failure(&error))?;
            Ok((actor, record))
        });
        let mut keys = self.keys.borrow_mut();
        let Some(Slot::Waits(waiting)) = keys.slots.remove(&key) else { return };
        match made {
            Ok((actor, record)) => {
                let numbers =
                    (record.snapshot.as_ref().map_or(0, |(number, _)| *number), record.last());
                let live = Live::start(self, Rc::clone(&key), actor, numbers);
                let stays = keys.are_here(&key, self.id);
                keys.slots.insert(key, Slot::Lives(Rc::clone(&live)));
                self.stats.started();
                drop(keys);
                waiting.into_iter().for_each(|work| live.push(work));
                if !stays {
                    live.leave();
                }
            }
            Err(failure) => {
                drop(keys);
                waiting.into_iter().for_each(|work| work.fail(failure.clone()));
                self.free(&key);
            }
        }
    }

    fn made(&self, key: &str, record: &Record) -> Result<A> {
        let mut actor = (self.make)(key.to_string(), &self.arguments)?;
        let snapshot = record.snapshot.iter().map(|(_, state)| (self.state.restore, state));
        let events = record.events.iter().map(|(_, event)| (self.state.replay, event));
        // All processes of a program have one build: what it can't read comes from another run.
        snapshot
            .chain(events)
            .try_for_each(|(apply, state)| apply(&mut actor, state))
            .map_err(|error| error.recorded(self.plan.journal.as_deref()))?;
        Ok(actor)
    }

    /// Notes the end of an entity. Its key is free when its last changes are recorded.
    pub(super) fn ended(self: &Rc<Self>, live: &Rc<Live<A>>, end: End) {
        if let End::Panicked(message) = end {
            tracing::warn!("entity `{}` has panicked: {message}", live.key);
        }
        self.stats.ended();
        let waiting = Slot::Waits(Box::new(live.take_queue()));
        self.keys.borrow_mut().slots.insert(Rc::clone(&live.key), waiting);
        let (shared, key) = (Rc::clone(self), Rc::clone(&live.key));
        drop(spawn_local(async move {
            shared.writes.settled().await;
            let is_needed = match shared.keys.borrow().slots.get(&key) {
                Some(Slot::Waits(waiting)) => !waiting.is_empty(),
                _ => return,
            };
            if is_needed {
                return shared.begin(key);
            }
            shared.keys.borrow_mut().slots.remove(&key);
            shared.free(&key);
        }));
    }

    /// Tells those who wait for a key that it has no entity here.
    fn free(self: &Rc<Self>, key: &Rc<str>) {
        self.freed.notify_waiters();
        let mut keys = self.keys.borrow_mut();
        let Some(token) = keys.token.filter(|_| keys.leaving.remove(key)) else { return };
        drop(keys);
        let released = Released { token, keys: vec![key.to_string()] };
        let answer = self.coordinator.send(released);
        drop(spawn_local(async move {
            if let Err(error) = answer.await {
                tracing::error!("the coordinator of its entities can't be reached: {error}");
            }
        }));
    }

    /// Saves the entities whose keys another process gets. Returns the keys of those that are busy.
    async fn prepare(self: Rc<Self>, next: Table) -> Vec<String> {
        let (mut idle, busy) = self.give_up(next);
        loop {
            let freed = self.freed.notified();
            idle.retain(|key| self.keys.borrow().slots.contains_key(key));
            if idle.is_empty() {
                break;
            }
            freed.await;
        }
        let leaving = &self.keys.borrow().leaving;
        busy.iter().filter(|key| leaving.contains(*key)).map(|key| key.to_string()).collect()
    }

    /// Takes no more messages for keys that another process gets, and lets their entities end.
    /// Returns the keys of those that do nothing, and of those that are busy.
    fn give_up(&self, next: Table) -> (Vec<Rc<str>>, Vec<Rc<str>>) {
        let mut keys = self.keys.borrow_mut();
        keys.next = Some(next);
        // Messages for a key that has not arrived go to the process that gets it in the end.
        let lost = keys.expected.iter().filter(|key| !keys.are_here(key, self.id)).cloned();
        let lost: Vec<_> = lost.collect();
        let lost: Vec<_> = lost.iter().filter_map(|key| keys.slots.remove(&**key)).collect();
        let (mut idle, mut busy) = (Vec::new(), Vec::new());
        for (key, slot) in &keys.slots {
            if keys.are_here(key, self.id) {
                continue;
            }
            match slot {
                Slot::Lives(live) => {
                    if live.is_idle() { &mut idle } else { &mut busy }.push(Rc::clone(key));
                    live.leave();
                }
                Slot::Waits(waiting) if waiting.is_empty() => idle.push(Rc::clone(key)),
                Slot::Waits(_) => busy.push(Rc::clone(key)),
            }
        }
        keys.leaving.extend(busy.iter().cloned());
        drop(keys);
        for slot in lost {
            if let Slot::Waits(waiting) = slot {
                waiting.into_iter().for_each(|work| work.fail(CallFailure::Moved));
            }
        }
        (idle, busy)
    }

    fn commit(self: &Rc<Self>, table: Table, expected: Vec<String>) {
        let mut keys = self.keys.borrow_mut();
        keys.table = table;
        keys.next = None;
        keys.expected = expected.into_iter().collect();
    }

    fn arrived(self: &Rc<Self>, arrived: Vec<String>, number: u64) {
        for key in &arrived {
            let mut keys = self.keys.borrow_mut();
            let waits = keys.expected.remove(key).then(|| keys.slots.get_key_value(&**key));
            let waiting = waits.flatten().map(|(key, _)| Rc::clone(key));
            drop(keys);
            waiting.into_iter().for_each(|key| self.begin(key));
        }
        let mut keys = self.keys.borrow_mut();
        if keys.token.is_none() {
            keys.arrived_early.push((number, arrived));
        }
    }

    /// Sends the next write behind all entities that are ready to run.
    pub(super) fn write_soon(self: &Rc<Self>) {
        let shared = Rc::clone(self);
        drop(spawn_local(async move { shared.write().await }));
    }

    async fn write(self: Rc<Self>) {
        let token = self.keys.borrow().token.expect("entities start when it is there");
        let (number, changes) = self.writes.begin();
        let written = self.coordinator.send(Write { token, changes }).await;
        match written.unwrap_or_else(|error| Err(failure(&error))) {
            Ok(()) => self.writes.ended(number),
            Err(problem) => {
                tracing::error!("events or states of entities can't be recorded: {problem:?}");
                self.writes.failed(number, &problem);
                // The coordinator takes no more of this process, lest an event be missing.
                self.keeper.get().into_iter().for_each(|keeper| keeper.do_send(Quit));
            }
        }
    }
}

impl<A: Actor<Context = Context<A>>> Keys<A> {
    /// Returns whether this process takes messages for a key.
    fn are_here(&self, key: &str, id: KeeperId) -> bool {
        let is_here = |table: &Table| table.keeper_of(key) == Some(id);
        is_here(&self.table) && self.next.as_ref().is_none_or(is_here)
    }
}
