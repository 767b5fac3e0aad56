//! The entity of these tests.

use std::path::PathBuf;
use std::time::Duration;

use actix::prelude::*;
use fiber::entities::{Entity, EventSourced, Reminder, this};
use fiber::manager::Snapshot;
use fiber_test_support::hang;
use serde::{Deserialize, Deserializer, Serialize};

/// An account, which can keep its state in both ways.
#[derive(Default)]
pub(super) struct Account {
    pub(super) key: String,
    pub(super) balance: i64,
    /// The numbers of the messages that it has handled, in their order.
    seen: Vec<u64>,
    reminders: Vec<String>,
}

impl Account {
    pub(super) fn new(key: String, (): ()) -> Account {
        Account { key, ..Account::default() }
    }
}

impl Actor for Account {
    type Context = Context<Self>;
}

#[derive(Serialize, Deserialize)]
pub(super) enum Event {
    Deposited(i64),
    Seen(u64),
}

impl EventSourced for Account {
    type Event = Event;

    fn apply(&mut self, event: Event) {
        match event {
            Event::Deposited(amount) => self.balance += amount,
            Event::Seen(number) => self.seen.push(number),
        }
    }
}

impl Snapshot for Account {
    type State = (i64, Vec<u64>);

    fn snapshot(&self) -> (i64, Vec<u64>) {
        (self.balance, self.seen.clone())
    }

    fn restore(&mut self, (balance, seen): (i64, Vec<u64>)) {
        (self.balance, self.seen) = (balance, seen);
    }
}

/// Adds to the balance, without an event. The answer is the balance.
#[fiber::message(i64)]
pub(super) struct Add(pub(super) i64);

/// Adds to the balance by an event. The answer is the balance.
#[fiber::message(i64)]
pub(super) struct Deposit(pub(super) i64);

/// Notes a number by an event. The answer is what it has seen.
#[fiber::message(Vec<u64>)]
pub(super) struct See(pub(super) u64);

/// Asks for the key and the process.
#[fiber::message((String, u32))]
pub(super) struct Where;

/// Answers after a time, while other messages are handled. The answer is the balance before.
#[fiber::message(i64)]
pub(super) struct Slow(pub(super) Duration);

impl Handler<Slow> for Account {
    type Result = ResponseFuture<i64>;

    fn handle(&mut self, Slow(time): Slow, _: &mut Context<Self>) -> ResponseFuture<i64> {
        let balance = self.balance;
        Box::pin(async move {
            tokio::time::sleep(time).await;
            balance
        })
    }
}

#[fiber::message]
pub(super) struct Panic;

/// Makes a file, and then blocks its process for good.
#[fiber::message]
pub(super) struct Block(pub(super) PathBuf);

/// Panics when it is read.
#[derive(Message, Serialize)]
#[rtype(result = "()")]
pub(super) struct Unreadable;

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Unreadable, D::Error> {
        panic!("nobody can read it")
    }
}

/// Ends the entity by itself.
#[fiber::message]
pub(super) struct GoToSleep;

/// Lets the account remind itself. The answer is its own address.
#[fiber::message(Entity<Account>)]
pub(super) struct RemindYourself;

#[fiber::handlers]
impl Account {
    fn add(&mut self, Add(amount): Add) -> i64 {
        self.balance += amount;
        self.balance
    }

    fn deposit(&mut self, Deposit(amount): Deposit) -> i64 {
        self.persist(Event::Deposited(amount));
        self.balance
    }

    fn see(&mut self, See(number): See) -> Vec<u64> {
        self.persist(Event::Seen(number));
        self.seen.clone()
    }

    fn place(&mut self, _: Where) -> (String, u32) {
        (self.key.clone(), std::process::id())
    }

    fn panic(&mut self, _: Panic) {
        panic!("the account is closed");
    }

    fn block(&mut self, Block(begun): Block) {
        std::fs::write(begun, "").expect("there is room");
        hang();
    }

    fn unreadable(&mut self, _: Unreadable) {}

    fn go_to_sleep(&mut self, _: GoToSleep, context: &mut Context<Self>) {
        context.stop();
    }

    fn remind_yourself(&mut self, _: RemindYourself) -> Entity<Account> {
        let own = this::<Account>().unwrap();
        drop(own.remind("own", Duration::from_millis(1)));
        own
    }

    fn reminder(&mut self, reminder: Reminder) {
        self.reminders.push(reminder.name);
        self.persist(Event::Deposited(100));
    }
}
