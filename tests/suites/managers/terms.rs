//! Urgent messages, and deadlines that travel with nested requests.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::{AsyncManager, Error, RemoteAddr, Reply};
use fiber_test_support::wait::wait_for;
use serde::{Deserialize, Serialize};

use super::counter::{Add, Counter, Meet, counter, wait_until_it_begins};

/// Longer than a message takes to the handler, also on a busy host.
const ENOUGH: Duration = Duration::from_secs(2);

/// Has an actor wait in a handler, until [`release`].
fn block(counter: &AsyncManager<Counter>, place: &Path) -> Reply<()> {
    let meet = counter.send(Meet { place: place.into(), name: 0, others: 2 });
    wait_until_it_begins(place);
    meet
}

fn release(place: &Path) {
    std::fs::write(place.join("1"), "").unwrap();
}

#[test]
fn urgent_messages_come_before_those_that_wait_and_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let manager = AsyncManager::builder().mailbox(5).start(Counter::new, 0).wait().unwrap();
    let met = block(&manager, folder.path());
    let urgent = manager.addr().urgent();
    let usual: Vec<_> = (0..3).map(|_| manager.send(Add(1))).collect();
    let first = [urgent.send(Add(100)), urgent.send(Add(1000))];
    // Its refusal says that the others have arrived.
    let error = urgent.send(Add(7)).wait().unwrap_err();
    assert!(matches!(error, Error::MailboxFull { capacity: 5, .. }), "{error}");
    release(folder.path());
    met.wait().unwrap();
    assert_eq!(first.map(|call| call.wait().unwrap()), [100, 1100]);
    let usual: Vec<_> = usual.into_iter().map(|call| call.wait().unwrap()).collect();
    assert_eq!(usual, [1101, 1102, 1103]);
}

#[test]
fn a_call_whose_caller_has_given_up_is_not_handled() {
    let folder = tempfile::tempdir().unwrap();
    let manager = AsyncManager::builder().mailbox(2).start(Counter::new, 0).wait().unwrap();
    let met = block(&manager, folder.path());
    let given_up = manager.addr().timeout(ENOUGH).send(Add(1));
    manager.addr().timeout(ENOUGH).do_send(Add(10));
    // Its refusal says that the others have arrived.
    let error = manager.send(Add(7)).wait().unwrap_err();
    assert!(matches!(error, Error::MailboxFull { .. }), "{error}");
    std::thread::sleep(ENOUGH);
    let error = given_up.wait().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    release(folder.path());
    met.wait().unwrap();
    // The mailbox is full until the actor has come to the others.
    let mut answers = std::iter::repeat_with(|| manager.send(Add(100)).wait());
    assert_eq!(answers.find_map(Result::ok), Some(110));
}

/// Asks a counter, and remembers the errors.
struct Relay {
    counter: RemoteAddr<Counter>,
    errors: Vec<String>,
}

impl Actor for Relay {
    type Context = Context<Self>;
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum How {
    /// The handler blocks.
    Blocking,
    /// The handler sends the call, and returns a future.
    SentBefore,
    /// The future sends the call.
    SentLater,
}

#[fiber::message]
struct Ask(How);

impl Handler<Ask> for Relay {
    type Result = ResponseActFuture<Relay, ()>;

    fn handle(&mut self, Ask(how): Ask, _: &mut Context<Relay>) -> Self::Result {
        let left = fiber::remote::deadline().map(|end| end.duration_since(Instant::now()));
        assert!(left.is_some_and(|left| left <= ENOUGH), "{left:?}");
        let counter = self.counter.clone().inherit_deadline();
        let answer: Reply<u64> = match how {
            How::Blocking => {
                let answer = self.counter.send(Add(1)).wait();
                Reply::new(async move { answer })
            }
            How::SentBefore => self.counter.send(Add(1)),
            How::SentLater => Reply::new(async move { counter.send(Add(1)).await }),
        };
        Box::pin(answer.into_actor(self).map(|answer, relay, _| {
            relay.errors.extend(answer.err().map(|error| error.to_string()));
        }))
    }
}

#[fiber::message(Vec<String>)]
struct Errors;

#[fiber::handlers]
impl Relay {
    fn errors(&mut self, _: Errors) -> Vec<String> {
        assert_eq!(fiber::remote::deadline(), None);
        self.errors.clone()
    }
}

#[test]
fn nested_calls_end_with_the_request_of_which_they_are_a_part() {
    let ends = |how: How| {
        let folder = tempfile::tempdir().unwrap();
        let place: PathBuf = folder.path().into();
        let manager = counter(0);
        let make = |counter: RemoteAddr<Counter>| Relay { counter, errors: Vec::new() };
        let relay = AsyncManager::start(make, manager.addr()).wait().unwrap();
        let met = block(&manager, &place);
        // Both calls end at the same time, so this one may have an answer.
        let _ = relay.addr().timeout(ENOUGH).send(Ask(how)).wait();
        // The counter is still blocked, and its call has ended all the same.
        let errors = wait_for("the end of the nested call", || {
            let errors = relay.send(Errors).wait().unwrap();
            if errors.is_empty() { Err(how) } else { Ok(errors) }
        });
        assert!(errors[0].contains("did not happen within"), "{how:?}: {errors:?}");
        release(&place);
        met.wait().unwrap();
    };
    // Side by side, as each takes its time.
    std::thread::scope(|scope| {
        for how in [How::Blocking, How::SentBefore, How::SentLater] {
            scope.spawn(move || ends(how));
        }
    });
}
