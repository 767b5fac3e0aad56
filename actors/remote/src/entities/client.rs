//! Entities as a process that sends them messages knows them.
//!
//! A message goes to the process that keeps its key, as the table says. Messages of one key stay in
//! their order when the key moves: those to its new process wait until the old one has answered, or
//! refused, all earlier ones. Refused ones go first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Instant;

use fiber_core::{Error, ExitReason, ProcessId, Result};
use fiber_runtime::mesh::{ActorId, Answer, CallFailure, Payload, Unanswered, Waiter};
use fiber_runtime::runtime::Runtime;
use fiber_values::transfer::KeepAlive;
use parking_lot::Mutex;

use super::coordinator::Coordinator;
use super::wire::{AskTable, KeeperId, Table};
use crate::remote::RemoteAddr;

/// The parts of the keys, each with a lock of its own.
const PARTS: usize = 16;

/// See the module's documentation.
pub(super) struct Client {
    pub(super) runtime: &'static Runtime,
    pub(super) name: Arc<str>,
    pub(super) coordinator: RemoteAddr<Coordinator>,
    table: Mutex<Known>,
    keys: [Mutex<HashMap<Arc<str>, Key>>; PARTS],
    hasher: RandomState,
}

/// The table that a process knows.
#[derive(Default)]
struct Known {
    table: Arc<Table>,
    is_asking: bool,
}

/// A key with messages that have no answer.
#[derive(Default)]
struct Key {
    /// Where they go.
    way: Way,
    /// The number of messages that are sent, and neither answered nor refused.
    open: usize,
    /// Messages that go to the process.
    ready: VecDeque<(u64, Outgoing)>,
    /// Messages that wait for the next table, by their numbers.
    held: BTreeMap<u64, Outgoing>,
    /// The last table under which a message was refused: those that are held wait for the next one.
    refused_under: u64,
    last: u64,
    /// Whether a thread sends those that are ready.
    is_sending: bool,
}

/// A process that keeps a key, and the last table of which it is known that it says so.
#[derive(Clone, Copy, Default)]
struct Way {
    keeper: Option<KeeperId>,
    epoch: u64,
}

/// A message to an entity.
pub(super) struct Outgoing {
    pub(super) payload: Payload,
    pub(super) answer: Waiter,
    /// The time at which the caller stops waiting: the payload says how much is left until then.
    pub(super) deadline: Option<Instant>,
    /// Whether it is sent again when the process of its entity dies.
    pub(super) resend: bool,
    pub(super) keep_alive: KeepAlive,
}

/// The clients of a session that this process uses.
#[derive(Default)]
struct Clients(Mutex<HashMap<(ProcessId, ActorId), Weak<Client>>>);

impl Client {
    /// Returns the client of a coordinator.
    pub(super) fn of(name: Arc<str>, coordinator: RemoteAddr<Coordinator>) -> Result<Arc<Client>> {
        let target = &coordinator.untyped.target;
        let runtime = coordinator.untyped.runtime()?;
        let id = (target.home.id, target.actor);
        let mut clients = runtime.part::<Clients>().0.lock();
        if let Some(client) = clients.get(&id).and_then(Weak::upgrade) {
            return Ok(client);
        }
        clients.retain(|_, client| client.strong_count() > 0);
        let (keys, hasher) = (std::array::from_fn(|_| Mutex::default()), RandomState::new());
        let table = Mutex::default();
        let client = Arc::new(Client { runtime, name, coordinator, table, keys, hasher });
        clients.insert(id, Arc::downgrade(&client));
        Ok(client)
    }

    /// Sends a message to the entity of a key.
    pub(super) fn send(self: &Arc<Self>, key: &Arc<str>, message: Outgoing) {
        let mut keys = self.part(key).lock();
        // `learn` looks at the keys after it has set a table, so no message waits with an older one.
        let table = Arc::clone(&self.table.lock().table);
        if let Some(end) = table.end.as_ref().filter(|_| table.keepers.is_empty()) {
            drop(keys);
            // There may be processes again.
            self.ask_after(table.epoch);
            return message.answer.complete(Err(Unanswered::Lost(end.clone())));
        }
        let state = keys.entry(Arc::clone(key)).or_default();
        state.last += 1;
        let number = state.last;
        let keeper = table.keeper_of(key);
        let is_first = state.open == 0 && state.ready.is_empty() && state.held.is_empty();
        if keeper.is_some() && (is_first || (state.held.is_empty() && state.way.keeper == keeper)) {
            state.way = Way { keeper, epoch: table.epoch };
            state.ready.push_back((number, message));
            drop(keys);
            return self.flush(key);
        }
        state.held.insert(number, message);
        drop(keys);
        if keeper.is_none() {
            self.ask_after(table.epoch);
        }
    }

    fn part(&self, key: &Arc<str>) -> &Mutex<HashMap<Arc<str>, Key>> {
        &self.keys[self.hasher.hash_one(&**key) as usize % PARTS]
    }

    /// Sends the messages of a key that are ready. No lock is held meanwhile: an answer may be
    /// there at once.
    fn flush(self: &Arc<Self>, key: &Arc<str>) {
        let mut is_mine = false;
        loop {
            let mut keys = self.part(key).lock();
            let table = Arc::clone(&self.table.lock().table);
            let Some(state) = keys.get_mut(key) else { return };
            if !is_mine && std::mem::replace(&mut state.is_sending, true) {
                return;
            }
            is_mine = true;
            let may_move = state.open == 0 && state.ready.is_empty();
            if may_move && table.epoch > state.refused_under && !state.held.is_empty() {
                // The key may have moved.
                state.way = Way { keeper: table.keeper_of(key), epoch: table.epoch };
                if state.way.keeper.is_some() {
                    state.ready = std::mem::take(&mut state.held).into_iter().collect();
                }
            }
            let way = state.way;
            let Some((number, message)) = state.ready.pop_front() else {
                state.is_sending = false;
                if state.open == 0 && state.held.is_empty() {
                    keys.remove(key);
                }
                return;
            };
            state.open += 1;
            drop(keys);
            self.send_to(way, key, number, &table, message);
        }
    }

    fn send_to(
        self: &Arc<Self>,
        way: Way,
        key: &Arc<str>,
        number: u64,
        table: &Table,
        message: Outgoing,
    ) {
        let Some(addr) = way.keeper.and_then(|keeper| table.addr(keeper)) else {
            // The table has changed since: it is sent by the new one.
            return self.refused(key, number, message, 0);
        };
        let Outgoing { mut payload, answer, deadline, resend, keep_alive } = message;
        if let Some(deadline) = deadline {
            // It may have waited here while its key moved.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                answer.complete(Err(Unanswered::Failed(CallFailure::Late)));
                return self.answered(key);
            }
            payload.set_time_left(left);
        }
        let mut addr = addr.clone();
        addr.resend = resend;
        // The table may be newer than that of the way. A refusal then is of the older one: a message
        // that waited for the table after this one would wait for ever.
        let (client, key, epoch) = (Arc::clone(self), Arc::clone(key), way.epoch);
        let again = payload.clone();
        let then = move |answered: Answer| {
            if let Some(epoch) = retried_after(&answered, epoch, resend) {
                let message = Outgoing { payload: again, answer, deadline, resend, keep_alive };
                return client.refused(&key, number, message, epoch);
            }
            answer.complete(answered);
            client.answered(&key);
        };
        addr.call_payload(self.runtime, payload, Waiter::Callback(Box::new(then)));
    }

    /// Notes that a message was answered.
    fn answered(self: &Arc<Self>, key: &Arc<str>) {
        let mut keys = self.part(key).lock();
        let Some(state) = keys.get_mut(key) else { return };
        state.open -= 1;
        // The thread that has made a message ready is about to send it.
        let is_over = state.open == 0 && !state.is_sending && state.ready.is_empty();
        if is_over && state.held.is_empty() {
            keys.remove(key);
        } else if is_over {
            drop(keys);
            self.flush(key);
        }
    }

    /// Notes that the process of a key has refused a message: the key is not its own.
    fn refused(self: &Arc<Self>, key: &Arc<str>, number: u64, message: Outgoing, epoch: u64) {
        let mut keys = self.part(key).lock();
        if let Some(state) = keys.get_mut(key) {
            state.open -= 1;
            state.refused_under = state.refused_under.max(epoch);
            // Messages that are ready are behind it.
            let ready = std::mem::take(&mut state.ready);
            state.held.extend(ready);
            state.held.insert(number, message);
        }
        drop(keys);
        if self.table.lock().table.epoch > epoch {
            self.flush(key);
        } else {
            self.ask_after(epoch);
        }
    }

    /// Asks the coordinator for newer tables from now on, and sends what waits for one. So this
    /// process knows of a change before the processes end that lose their keys.
    fn ask_after(self: &Arc<Self>, epoch: u64) {
        let mut known = self.table.lock();
        if known.is_asking {
            return;
        }
        known.is_asking = true;
        drop(known);
        // The client stays until the coordinator ends: another one would ask once more, and each
        // question stays open until the table changes.
        let client = Arc::clone(self);
        self.runtime.spawn(move || async move {
            let mut after = epoch;
            while let Some(epoch) = client.learn(client.coordinator.send(AskTable { after }).await)
            {
                after = epoch;
            }
        });
    }

    /// Takes a table, and sends what waits for it. Returns its number, or `None` if the coordinator
    /// can't be reached: what waits has failed.
    fn learn(self: &Arc<Self>, answer: Result<Table>) -> Option<u64> {
        let mut known = self.table.lock();
        let (epoch, end) = match answer {
            Ok(table) => {
                let end = table.end.clone().filter(|_| table.keepers.is_empty());
                let epoch = table.epoch;
                known.table = Arc::new(table);
                (Some(epoch), end)
            }
            Err(Error::ActorStopped { reason, .. }) => (None, Some(reason)),
            Err(error) => (None, Some(ExitReason::Failed(error.to_string()))),
        };
        known.is_asking = epoch.is_some();
        drop(known);
        self.flush_all(end.as_ref());
        epoch
    }

    /// Sends all messages that can be sent, or fails those that wait for a table.
    fn flush_all(self: &Arc<Self>, failure: Option<&ExitReason>) {
        for part in &self.keys {
            let keys: Vec<_> = {
                let mut keys = part.lock();
                if let Some(reason) = failure {
                    keys.values_mut().for_each(|key| key.fail(reason));
                }
                keys.keys().cloned().collect()
            };
            keys.iter().for_each(|key| self.flush(key));
        }
    }
}

impl Key {
    fn fail(&mut self, reason: &ExitReason) {
        for message in std::mem::take(&mut self.held).into_values() {
            message.answer.complete(Err(Unanswered::Lost(reason.clone())));
        }
    }
}

/// Returns after which table a message is sent again that went by the table `epoch`; `None` if the
/// answer is one.
fn retried_after(answer: &Answer, epoch: u64, resend: bool) -> Option<u64> {
    match answer {
        // The process has refused the message: the key is not its own.
        Err(Unanswered::Failed(CallFailure::Moved)) => Some(epoch),
        // The actor of the process has ended by itself, since it can't record, or the process is
        // about to end, since it has lost the coordinator. It starts again.
        Err(Unanswered::Failed(CallFailure::Stopped(_))) if resend => Some(0),
        // The process has ended for good, so there is a newer table, or there are no entities.
        Err(Unanswered::Lost(_)) if resend => Some(epoch),
        _ => None,
    }
}
