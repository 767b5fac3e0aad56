//! Deadlines of requests that reach entities.

use std::time::Duration;

use actix::prelude::*;
use fiber::entities::Entity;
use fiber::{AsyncManager, Entities};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Longer than a message takes to the handler, also on a busy host.
const ENOUGH: Duration = Duration::from_secs(2);

/// Lets a desk of this process go on.
static RELEASED: Notify = Notify::const_new();

/// An entity that adds numbers.
struct Desk(u64);

impl Actor for Desk {
    type Context = Context<Self>;
}

/// Lets other messages to the desk wait for `Release`.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Occupy;

impl Handler<Occupy> for Desk {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _: Occupy, _: &mut Context<Self>) -> AtomicResponse<Self, ()> {
        assert!(fiber::remote::deadline().is_some(), "it has that of the front's request");
        AtomicResponse::new(Box::pin(RELEASED.notified().into_actor(self)))
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Release;

impl Handler<Release> for Desk {
    type Result = ();

    fn handle(&mut self, _: Release, _: &mut Context<Self>) {
        RELEASED.notify_one();
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

impl Handler<Add> for Desk {
    type Result = u64;

    fn handle(&mut self, Add(amount): Add, _: &mut Context<Self>) -> u64 {
        self.0 += amount;
        self.0
    }
}

/// Asks a desk, and remembers the errors.
struct Front {
    desk: Entity<Desk>,
    errors: Vec<String>,
}

impl Actor for Front {
    type Context = Context<Self>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Ask {
    amount: u64,
    occupies: bool,
}

impl Handler<Ask> for Front {
    type Result = ();

    fn handle(&mut self, ask: Ask, _: &mut Context<Self>) {
        if ask.occupies {
            drop(self.desk.send(Occupy));
        }
        let answer = self.desk.send(Add(ask.amount)).wait();
        self.errors.extend(answer.err().map(|error| error.to_string()));
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<String>")]
struct Errors;

impl Handler<Errors> for Front {
    type Result = Vec<String>;

    fn handle(&mut self, _: Errors, _: &mut Context<Self>) -> Vec<String> {
        self.errors.clone()
    }
}

#[test]
fn a_message_whose_caller_has_given_up_is_not_handled() {
    let desks = Entities::builder("desks").processes(1).start(|_: String, ()| Desk(0), ());
    let desks = desks.wait().unwrap();
    let make = |desk: Entity<Desk>| Front { desk, errors: Vec::new() };
    let front = AsyncManager::start(make, desks.of("front")).wait().unwrap();
    let urged = front.addr().timeout(ENOUGH);
    // Both calls end at the same time, so this one may have an answer.
    let _ = urged.send(Ask { amount: 1, occupies: true }).wait();
    // When this one is over, the first is over in the desk's process, too.
    let _ = urged.send(Ask { amount: 10, occupies: false }).wait();
    let errors = front.send(Errors).wait().unwrap();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().all(|error| error.contains("did not happen within")), "{errors:?}");
    desks.of("other").send(Release).wait().unwrap();
    let sum = desks.of("front").send(Add(0)).wait().unwrap();
    assert_eq!(sum % 10, 0, "the first message was handled: {sum}");
}
