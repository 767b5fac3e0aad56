//! An account, and how money goes from one to another.
//!
//! No event changes two entities, so a transfer has three steps:
//!
//! 1. The account that pays records one event: its balance is less by the amount, and the payment
//!    is in its *outbox*. Then the teller gets its answer. The transfer can't be lost from here on.
//! 2. [`deliver`] sends the payment to the other account, again and again until that answers, which
//!    it does when the event with the money is recorded.
//! 3. The payment leaves the outbox.
//!
//! A process that dies between two steps leaves a payment in an outbox, whose reminder begins with
//! step 2 again. So each step may happen twice, and each account knows by numbers what it has done:
//! the last transfer of each teller, and the last payment from each other account. Both come in the
//! order of their numbers, so one number for each is enough.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use fiber::entities::{EventSourced, Reminder, find_entities, this};
use fiber::manager::Snapshot;
use serde::{Deserialize, Serialize};

use super::{BANK, OPENING, perhaps_die};

/// After this time, an account looks at its outbox again.
const AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Account {
    name: String,
    state: State,
    deaths: u32,
    is_delivering: bool,
    /// Whether a reminder is on its way.
    is_reminded: bool,
    /// The transfers that wait for the reminder.
    preparing: usize,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct State {
    balance: u64,
    /// The number of each teller's last transfer, and its outcome.
    tellers: BTreeMap<u32, (u64, Outcome)>,
    /// The number of the last payment to each other account.
    sent: BTreeMap<String, u64>,
    outbox: VecDeque<Payment>,
    /// The number of the last payment from each other account.
    received: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Accepted,
    /// The account has too little money.
    Refused,
}

/// A payment to another account.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Payment {
    from: String,
    to: String,
    /// Counts the payments of one account to the other.
    number: u64,
    amount: u64,
}

/// An event of an account.
#[derive(Serialize, Deserialize)]
pub(crate) enum Event {
    /// A transfer of a teller is refused. It is recorded, so that the same number never gets
    /// another answer.
    Refused {
        teller: u32,
        number: u64,
    },
    Paid {
        teller: u32,
        number: u64,
        payment: Payment,
    },
    Arrived(Payment),
    Received(Payment),
}

impl Account {
    pub(crate) fn new(name: String, deaths: u32) -> Account {
        let state = State {
            balance: OPENING,
            tellers: BTreeMap::new(),
            sent: BTreeMap::new(),
            outbox: VecDeque::new(),
            received: BTreeMap::new(),
        };
        let (is_delivering, is_reminded) = (false, false);
        Account { name, state, deaths, is_delivering, is_reminded, preparing: 0 }
    }

    fn transfer(&mut self, transfer: Transfer, context: &mut Context<Account>) -> Outcome {
        let Transfer { teller, number, to, amount } = transfer;
        if let Some((last, outcome)) = self.state.tellers.get(&teller)
            && number <= *last
        {
            // The process of the teller, or of this account, has died before the answer.
            return *outcome;
        }
        if amount > self.state.balance {
            self.persist(Event::Refused { teller, number });
            return Outcome::Refused;
        }
        let last = self.state.sent.get(&to).copied().unwrap_or(0);
        let payment = Payment { from: self.name.clone(), to, number: last + 1, amount };
        self.persist(Event::Paid { teller, number, payment });
        perhaps_die(self.deaths);
        self.deliver(context);
        Outcome::Accepted
    }

    /// Lets the payments of the outbox arrive, if that is not under way. If this process ends
    /// before, the reminder lets them arrive.
    fn deliver(&mut self, context: &mut Context<Account>) {
        if self.state.outbox.is_empty() || std::mem::replace(&mut self.is_delivering, true) {
            return;
        }
        let delivery = wrap_future::<_, Account>(deliver(self.name.clone()));
        context.spawn(delivery.map(|delivered, account, context| {
            account.is_delivering = false;
            match delivered {
                Ok(()) => account.deliver(context),
                Err(error) => eprintln!("{}: {error}", account.name),
            }
        }));
    }
}

/// Lets all payments of an account arrive. It may run in any process, and in two at a time.
pub(crate) async fn deliver(name: String) -> fiber::Result<()> {
    let accounts = find_entities::<Account>(BANK).await?;
    let from = accounts.of(name).resend();
    // As any answer, that of an account leaves when its events are recorded. So no money arrives
    // that a crash could give back.
    let mut next = from.send(NextPayment { arrived: None }).await?;
    while let Some(payment) = next {
        accounts.of(&payment.to).resend().send(Receive(payment.clone())).await?;
        next = from.send(NextPayment { arrived: Some(payment) }).await?;
    }
    Ok(())
}

/// Lets this account look at its outbox after a time, also if its process or the program dies.
async fn remind() {
    let set = async { this::<Account>()?.remind("outbox", AGAIN).await };
    // A panic ends the entity before it has promised anything.
    set.await.unwrap_or_else(|error| panic!("the outbox has no reminder: {error}"));
}

impl Actor for Account {
    type Context = Context<Self>;

    /// Goes on where an earlier process has ended.
    fn started(&mut self, context: &mut Context<Self>) {
        self.deliver(context);
    }
}

impl EventSourced for Account {
    type Event = Event;

    fn apply(&mut self, event: Event) {
        let state = &mut self.state;
        match event {
            Event::Refused { teller, number } => {
                state.tellers.insert(teller, (number, Outcome::Refused));
            }
            Event::Paid { teller, number, payment } => {
                state.tellers.insert(teller, (number, Outcome::Accepted));
                state.balance -= payment.amount;
                state.sent.insert(payment.to.clone(), payment.number);
                state.outbox.push_back(payment);
            }
            Event::Arrived(payment) => state.outbox.retain(|sent| *sent != payment),
            Event::Received(payment) => {
                state.balance += payment.amount;
                state.received.insert(payment.from, payment.number);
            }
        }
    }
}

impl Snapshot for Account {
    type State = State;

    fn snapshot(&self) -> State {
        self.state.clone()
    }

    fn restore(&mut self, state: State) {
        self.state = state;
    }
}

/// Transfers money to another account. A teller sends it again, with its number, until it has the
/// answer, and only then the next one.
#[fiber::message(Outcome)]
pub(crate) struct Transfer {
    pub(crate) teller: u32,
    pub(crate) number: u64,
    pub(crate) to: String,
    pub(crate) amount: u64,
}

impl Handler<Transfer> for Account {
    type Result = ResponseActFuture<Self, Outcome>;

    fn handle(&mut self, transfer: Transfer, _: &mut Context<Self>) -> Self::Result {
        // The reminder is there before the payment that needs it.
        let reminder = (!self.is_reminded).then(remind);
        self.preparing += 1;
        let prepared = wrap_future::<_, Account>(async {
            if let Some(reminder) = reminder {
                reminder.await;
            }
        });
        Box::pin(prepared.map(|(), account, context| {
            account.is_reminded = true;
            account.preparing -= 1;
            account.transfer(transfer, context)
        }))
    }
}

impl Handler<Reminder> for Account {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Reminder, context: &mut Context<Self>) -> Self::Result {
        if self.state.outbox.is_empty() && self.preparing == 0 {
            self.is_reminded = false;
            return Box::pin(wrap_future(async {}));
        }
        self.deliver(context);
        // This reminder is over when it was answered, and the next one is set by then.
        Box::pin(wrap_future(remind()))
    }
}

/// Removes a payment that has arrived from the outbox, and asks for the next one.
#[fiber::message(Option<Payment>)]
struct NextPayment {
    arrived: Option<Payment>,
}

/// Adds a payment to the balance.
#[fiber::message]
struct Receive(Payment);

#[fiber::message(u64)]
pub(crate) struct ShowBalance;

#[fiber::handlers]
impl Account {
    fn next_payment(&mut self, message: NextPayment) -> Option<Payment> {
        let arrived = message.arrived.filter(|payment| self.state.outbox.contains(payment));
        if let Some(payment) = arrived {
            self.persist(Event::Arrived(payment));
            perhaps_die(self.deaths);
        }
        self.state.outbox.front().cloned()
    }

    fn receive(&mut self, Receive(payment): Receive) {
        let last = self.state.received.get(&payment.from).copied().unwrap_or(0);
        if payment.number > last {
            self.persist(Event::Received(payment));
            perhaps_die(self.deaths);
        }
    }

    fn show_balance(&mut self, _: ShowBalance) -> u64 {
        self.state.balance
    }
}
