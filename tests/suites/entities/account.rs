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
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "i64")]
pub(super) struct Add(pub(super) i64);

impl Handler<Add> for Account {
    type Result = i64;

    fn handle(&mut self, Add(amount): Add, _: &mut Context<Self>) -> i64 {
        self.balance += amount;
        self.balance
    }
}

/// Adds to the balance by an event. The answer is the balance.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "i64")]
pub(super) struct Deposit(pub(super) i64);

impl Handler<Deposit> for Account {
    type Result = i64;

    fn handle(&mut self, Deposit(amount): Deposit, _: &mut Context<Self>) -> i64 {
        self.persist(Event::Deposited(amount));
        self.balance
    }
}

/// Notes a number by an event. The answer is what it has seen.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<u64>")]
pub(super) struct See(pub(super) u64);

impl Handler<See> for Account {
    type Result = Vec<u64>;

    fn handle(&mut self, See(number): See, _: &mut Context<Self>) -> Vec<u64> {
        self.persist(Event::Seen(number));
        self.seen.clone()
    }
}

/// Asks for the key and the process.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "(String, u32)")]
pub(super) struct Where;

impl Handler<Where> for Account {
    type Result = MessageResult<Where>;

    fn handle(&mut self, _: Where, _: &mut Context<Self>) -> MessageResult<Where> {
        MessageResult((self.key.clone(), std::process::id()))
    }
}

/// Answers after a time, while other messages are handled. The answer is the balance before.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "i64")]
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

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub(super) struct Panic;

impl Handler<Panic> for Account {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Context<Self>) {
        panic!("the account is closed");
    }
}

/// Makes a file, and then blocks its process for good.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub(super) struct Block(pub(super) PathBuf);

impl Handler<Block> for Account {
    type Result = ();

    fn handle(&mut self, Block(begun): Block, _: &mut Context<Self>) {
        std::fs::write(begun, "").expect("there is room");
        hang();
    }
}

/// Panics when it is read.
#[derive(Message, Serialize)]
#[rtype(result = "()")]
pub(super) struct Unreadable;

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Unreadable, D::Error> {
        panic!("nobody can read it")
    }
}

impl Handler<Unreadable> for Account {
    type Result = ();

    fn handle(&mut self, _: Unreadable, _: &mut Context<Self>) {}
}

/// Ends the entity by itself.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub(super) struct GoToSleep;

impl Handler<GoToSleep> for Account {
    type Result = ();

    fn handle(&mut self, _: GoToSleep, context: &mut Context<Self>) {
        context.stop();
    }
}

/// Lets the account remind itself. The answer is its own address.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Entity<Account>")]
pub(super) struct RemindYourself;

impl Handler<RemindYourself> for Account {
    type Result = MessageResult<RemindYourself>;

    fn handle(&mut self, _: RemindYourself, _: &mut Context<Self>) -> Self::Result {
        let own = this::<Account>().unwrap();
        drop(own.remind("own", Duration::from_millis(1)));
        MessageResult(own)
    }
}

impl Handler<Reminder> for Account {
    type Result = ();

    fn handle(&mut self, reminder: Reminder, _: &mut Context<Self>) {
        self.reminders.push(reminder.name);
        self.persist(Event::Deposited(100));
    }
}
