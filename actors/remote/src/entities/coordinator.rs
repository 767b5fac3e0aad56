//! The coordinator of entities, in the process that owns them.
//!
//! It decides which process keeps which keys, and has the records. A change takes two steps: first
//! all processes stop to take messages for keys that they lose, and save the entities of these
//! keys; then the new table counts. A key whose entity is busy moves when that is done: until then
//! its new process waits.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use actix::{Actor, ActorContext, Context, Handler, Message, ResponseFuture};
use fiber_core::ExitReason;
use fiber_runtime::mesh::CallFailure;
use fiber_runtime::reply::Reply;
use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, watch};

use super::inspection::{AskLives, Lives};
use super::records::Records;
use super::reminders::Reminders;
use super::wire::{
    AskTable, Change, Hello, KeeperId, Leaving, Load, Record, Released, Remind, RemindFailure,
    Table, Token, Welcome, Write, replaced,
};
use crate::remote::{RemoteRecipient, UntypedAddr};

/// See the module's documentation.
pub(super) struct Coordinator(pub(super) Rc<Coordination>);

/// The state of a coordinator.
pub(super) struct Coordination {
    pub(super) records: Records,
    pub(super) reminders: Reminders,
    /// The table that counts.
    table: watch::Sender<Table>,
    /// The processes that get changes. A change is sent again if its process dies meanwhile.
    keepers: RefCell<BTreeMap<KeeperId, Process>>,
    /// The numbers of the incarnations that may write.
    numbers: RefCell<HashMap<KeeperId, u64>>,
    /// Keys that one process has to save before the next one may have them.
    busy: RefCell<HashMap<String, KeeperId>>,
    /// Keys that were saved while a change is being prepared.
    saved: RefCell<HashSet<(KeeperId, String)>>,
    /// Held while the table changes.
    changing: Mutex<()>,
    last_number: Cell<u64>,
    /// Tells the owner which processes have got SIGTERM.
    leaving: mpsc::UnboundedSender<KeeperId>,
}

/// A process, as a table has it.
pub(super) struct Member {
    pub(super) id: KeeperId,
    pub(super) addr: UntypedAddr,
    pub(super) process: Process,
}

/// The addresses of a process.
#[derive(Clone)]
pub(super) struct Process {
    /// This one sends a change again if the process dies meanwhile.
    pub(super) change: RemoteRecipient<Change>,
    pub(super) lives: RemoteRecipient<AskLives>,
}

impl Coordination {
    pub(super) fn new(
        records: Records,
        reminders: Reminders,
        leaving: mpsc::UnboundedSender<KeeperId>,
    ) -> Rc<Coordination> {
        Rc::new(Coordination {
            records,
            reminders,
            table: watch::Sender::default(),
            keepers: RefCell::default(),
            numbers: RefCell::default(),
            busy: RefCell::default(),
            saved: RefCell::default(),
            changing: Mutex::default(),
            last_number: Cell::new(0),
            leaving,
        })
    }

    /// Lets these processes keep the keys from now on, instead of those before.
    pub(super) async fn change(&self, members: Vec<Member>, end: Option<ExitReason>) {
        let _changing = self.changing.lock().await;
        let keepers = members.iter().map(|member| (member.id, member.addr.clone())).collect();
        let last = self.table.borrow().clone();
        let table = Table { epoch: last.epoch + 1, keepers, end };
        let all: Vec<_> = {
            let mut known = self.keepers.borrow_mut();
            for Member { id, process, .. } in members {
                known.entry(id).or_insert(process);
            }
            // A process that has lost its keys before may hang in its last entities.
            let concerned = known
                .iter()
                .filter(|(id, _)| [&last, &table].iter().any(|table| table.addr(**id).is_some()));
            concerned.map(|(id, process)| (*id, process.change.clone())).collect()
        };
        self.saved.borrow_mut().clear();
        let prepared = all.iter().map(|(id, to)| {
            let answer = to.send(Change::Prepare(table.clone()));
            async move { (*id, answer.await) }
        });
        let busy = join_all(prepared).await;
        {
            let (mut all_busy, saved) = (self.busy.borrow_mut(), self.saved.borrow());
            for (id, keys) in busy {
                let Ok(keys) = keys else {
                    // It is gone, or about to be: others have its keys, so that its entities may
                    // not write any more.
                    self.numbers.borrow_mut().remove(&id);
                    continue;
                };
                let unsaved = keys.into_iter().filter(|key| !saved.contains(&(id, key.clone())));
                all_busy.extend(unsaved.map(|key| (key, id)));
            }
        }
        // A process that has died meanwhile may have left changes.
        let _ = self.records.settled().await;
        let committed = all.iter().map(|(id, to)| {
            let (table, expected) = (table.clone(), self.expected_by(&table, *id));
            to.send(Change::Commit { table, expected })
        });
        join_all(committed).await;
        self.table.send_replace(table);
    }

    /// Waits until a process has no busy entity whose key is another's.
    pub(super) async fn vacated(&self, id: KeeperId) {
        let mut changes = self.table.subscribe();
        while self.busy.borrow().values().any(|busy| *busy == id) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the busy keys that a process gets.
    fn expected_by(&self, table: &Table, id: KeeperId) -> Vec<String> {
        let busy = self.busy.borrow();
        let is_its = |(key, at): &(&String, &KeeperId)| {
            **at != id && table.keeper_of(key.as_str()) == Some(id)
        };
        busy.iter().filter(is_its).map(|(key, _)| key.clone()).collect()
    }

    /// Notes that a process has saved keys, or has died, and tells all processes: one of them waits
    /// for each key.
    fn saved(&self, id: KeeperId, keys: Vec<String>) {
        let mut arrived = Vec::new();
        for key in keys {
            let mut busy = self.busy.borrow_mut();
            if busy.get(&key) == Some(&id) {
                busy.remove(&key);
                arrived.push(key);
            } else {
                self.saved.borrow_mut().insert((id, key));
            }
        }
        if !arrived.is_empty() {
            let number = self.next_number();
            // While the table changes, a key is expected by a process of either table.
            for process in self.keepers.borrow().values() {
                // A process that dies meanwhile learns it by its `Welcome`.
                drop(process.change.send(Change::Arrived { keys: arrived.clone(), number }));
            }
        }
        // Wakes those who wait for it.
        self.table.send_modify(|_| ());
    }

    /// Asks all processes for their live entities.
    pub(super) fn ask_lives(&self, ask: &AskLives) -> Vec<Reply<Option<Lives>>> {
        let keepers = self.keepers.borrow();
        keepers.values().map(|process| process.lives.send(ask.clone())).collect()
    }

    fn next_number(&self) -> u64 {
        self.last_number.set(self.last_number.get() + 1);
        self.last_number.get()
    }

    /// Returns whether a process is the current incarnation.
    fn is_current(&self, token: Token) -> bool {
        self.numbers.borrow().get(&token.keeper) == Some(&token.number)
    }

    /// Refuses all writes of a process from now on.
    fn refuse(&self, token: Token) {
        if self.is_current(token) {
            self.numbers.borrow_mut().remove(&token.keeper);
        }
    }

    async fn welcome(&self, keeper: KeeperId) -> Welcome {
        // A change asks all processes, and those that start answer at once.
        let _changing = self.changing.lock().await;
        let token = Token { keeper, number: self.next_number() };
        self.numbers.borrow_mut().insert(keeper, token.number);
        // Its last incarnation may have changes on their way.
        let _ = self.records.settled().await;
        let busy = self.busy.borrow();
        let lost = busy.iter().filter(|(_, at)| **at == keeper).map(|(key, _)| key.clone());
        let lost: Vec<_> = lost.collect();
        drop(busy);
        self.saved(keeper, lost);
        let table = self.table.borrow().clone();
        let expected = self.expected_by(&table, keeper);
        Welcome { token, table, expected }
    }

    /// Notes that a process has ended for good. The keys that it has not saved are free.
    pub(super) async fn gone(&self, id: KeeperId) {
        self.numbers.borrow_mut().remove(&id);
        self.keepers.borrow_mut().remove(&id);
        // It may have left changes, which the next process of its keys has to see.
        let _ = self.records.settled().await;
        let busy = self.busy.borrow();
        let lost = busy.iter().filter(|(_, at)| **at == id).map(|(key, _)| key.clone()).collect();
        drop(busy);
        self.saved(id, lost);
    }
}

impl Actor for Coordinator {
    type Context = Context<Coordinator>;
}

/// Ends a coordinator, in its process.
pub(super) struct Stop;

impl Message for Stop {
    type Result = ();
}

impl Handler<Stop> for Coordinator {
    type Result = ();

    fn handle(&mut self, _: Stop, context: &mut Context<Coordinator>) {
        self.0.records.release();
        self.0.reminders.stop();
        context.stop();
    }
}

/// Work on the state of a coordinator, for its own process.
pub(super) struct With<F>(pub(super) F);

impl<F, W> Message for With<F>
where
    F: FnOnce(Rc<Coordination>) -> W + 'static,
    W: Future<Output: 'static> + 'static,
{
    type Result = W::Output;
}

impl<F, W> Handler<With<F>> for Coordinator
where
    F: FnOnce(Rc<Coordination>) -> W + 'static,
    W: Future<Output: 'static> + 'static,
{
    type Result = ResponseFuture<W::Output>;

    fn handle(&mut self, With(work): With<F>, _: &mut Context<Self>) -> Self::Result {
        Box::pin(work(Rc::clone(&self.0)))
    }
}

impl Handler<AskTable> for Coordinator {
    type Result = ResponseFuture<Table>;

    fn handle(&mut self, AskTable { after }: AskTable, _: &mut Context<Self>) -> Self::Result {
        let mut tables = self.0.table.subscribe();
        Box::pin(async move {
            match tables.wait_for(|table| table.epoch > after).await {
                Ok(table) => table.clone(),
                // The coordinator is gone, as the caller learns by its link.
                Err(_) => Table::default(),
            }
        })
    }
}

impl Handler<Hello> for Coordinator {
    type Result = ResponseFuture<Welcome>;

    fn handle(&mut self, Hello(keeper): Hello, _: &mut Context<Self>) -> Self::Result {
        let state = Rc::clone(&self.0);
        Box::pin(async move { state.welcome(keeper).await })
    }
}

impl Handler<Leaving> for Coordinator {
    type Result = ();

    fn handle(&mut self, Leaving(id): Leaving, _: &mut Context<Self>) {
        // The entities may be about to end.
        let _ = self.0.leaving.send(id);
    }
}

impl Handler<Load> for Coordinator {
    type Result = Result<Record, CallFailure>;

    fn handle(&mut self, Load { token, key }: Load, _: &mut Context<Self>) -> Self::Result {
        if !self.0.is_current(token) {
            return Err(CallFailure::Stopped(replaced()));
        }
        self.0.records.load(&key)
    }
}

impl Handler<Write> for Coordinator {
    type Result = ResponseFuture<Result<(), CallFailure>>;

    fn handle(&mut self, Write { token, changes }: Write, _: &mut Context<Self>) -> Self::Result {
        if !self.0.is_current(token) {
            return Box::pin(async { Err(CallFailure::Stopped(replaced())) });
        }
        let (written, state) = (self.0.records.write(changes), Rc::clone(&self.0));
        Box::pin(async move { written.await.inspect_err(|_| state.refuse(token)) })
    }
}

impl Handler<Released> for Coordinator {
    type Result = ();

    fn handle(&mut self, Released { token, keys }: Released, _: &mut Context<Self>) {
        if self.0.is_current(token) {
            self.0.saved(token.keeper, keys);
        }
    }
}

impl Handler<Remind> for Coordinator {
    type Result = ResponseFuture<Result<(), RemindFailure>>;

    fn handle(&mut self, remind: Remind, _: &mut Context<Self>) -> Self::Result {
        let state = Rc::clone(&self.0);
        Box::pin(async move { state.reminders.set(&state.records, remind).await })
    }
}
