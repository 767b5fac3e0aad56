//! Messages to managed actors, and their answers.

use std::any::type_name;
use std::thread;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use fiber::{
    AsyncManager, Error, RemoteAddr,
    error::{ExitReason, FailureKind},
    remote::RemoteRecipient,
    stats::{Event, EventKind},
};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};

use super::counter::{Add, AskInACircle, AskOther, Counter, Gate, Meet, WhichProcess, counter};

#[test]
fn a_managed_actor_runs_in_its_own_process_and_answers() {
    let manager = AsyncManager::builder().name("account").start(Counter::new, 5).wait().unwrap();
    assert_eq!(manager.send(Add(2)).wait().unwrap(), 7);
    let pid = manager.send(WhichProcess).wait().unwrap();
    assert_ne!(pid, std::process::id());
    assert_eq!(manager.pid(), Some(pid));
    assert_eq!((manager.name(), manager.addr().name()), ("account", "account"));
    assert!(manager.connected());
    let two = AsyncManager::start(|a: u64, b: u64| Counter::new(a * b), (3, 4)).wait().unwrap();
    assert_eq!(two.send(Add(0)).wait().unwrap(), 12);
    assert_ne!(two.addr(), manager.addr());
    two.stop().wait().unwrap();
    assert_eq!(two.join().wait().unwrap(), ExitReason::Shutdown);
}

#[test]
fn messages_are_handled_in_the_order_in_which_they_were_sent() {
    let manager = counter(0);
    for _ in 0..1000 {
        manager.do_send(Add(1));
    }
    let answers: Vec<_> = (0..1000).map(|_| manager.send(Add(1))).collect();
    for (place, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.wait().unwrap(), 1001 + place as u64);
    }
    let only_adds: RemoteRecipient<Add> = manager.recipient();
    only_adds.try_send(Add(1)).unwrap();
    assert_eq!(only_adds.send(Add(0)).wait().unwrap(), 2001);
}

#[test]
fn async_handlers_run_concurrently_and_return_errors_as_values() {
    let manager = counter(0);
    let waits = manager.send(Gate::Wait);
    assert_eq!(manager.send(Gate::Release).wait().unwrap(), Err("released".to_string()));
    assert_eq!(waits.wait().unwrap(), Ok(1));
}

/// Adds to the count, and then once more. The answer is the difference.
#[fiber::message(u64)]
struct AddTwice(u64);

impl Handler<AddTwice> for Counter {
    type Result = AtomicResponse<Self, u64>;

    fn handle(&mut self, AddTwice(number): AddTwice, _: &mut Context<Self>) -> Self::Result {
        let before = self.add(Add(number)) - number;
        let pause = wrap_future::<_, Counter>(tokio::time::sleep(Duration::from_millis(1)));
        let again = move |(), counter: &mut Counter, _: &mut Context<Counter>| {
            counter.add(Add(number)) - before
        };
        AtomicResponse::new(Box::pin(pause.map(again)))
    }
}

#[test]
fn no_message_is_handled_during_an_atomic_response() {
    let manager = counter(0);
    let twice: Vec<_> = (1..=50)
        .map(|number| {
            manager.do_send(Add(1));
            (number, manager.send(AddTwice(number)))
        })
        .collect();
    for (number, difference) in twice {
        assert_eq!(difference.wait().unwrap(), 2 * number);
    }
}

#[test]
fn actors_in_different_processes_run_in_parallel() {
    let directory = tempfile::tempdir().unwrap();
    let managers: Vec<_> = (0..4).map(|_| counter(0)).collect();
    let place = directory.path();
    let meet = |(manager, name): (&AsyncManager<Counter>, u32)| {
        manager.send(Meet { place: place.into(), name, others: 4 })
    };
    // Each handler returns only after all have begun.
    let calls: Vec<_> = managers.iter().zip(0..).map(meet).collect();
    calls.into_iter().for_each(|call| call.wait().unwrap());
}

/// Tokio lets a task poll 128 of its resources, and then wait for others.
#[test]
fn a_task_takes_any_number_of_answers_at_once() {
    let manager = counter(0);
    let answers: Vec<_> = (0..1000).map(|_| manager.send(Add(1))).collect();
    // Its answer is the last one.
    assert_eq!(manager.send(Add(1)).wait().unwrap(), 1001);
    let take = async { answers.into_iter().filter_map(FutureExt::now_or_never).count() };
    assert_eq!(System::new().block_on(take), 1000);
}

#[test]
fn a_timeout_of_two_actors_that_wait_for_each_other_names_both() {
    let named =
        |name: &str| AsyncManager::builder().name(name).start(Counter::new, 0).wait().unwrap();
    let (left, right) = (named("left"), named("right"));
    // The circle is known after one second.
    let limit = Duration::from_secs(3);
    let circle = AskInACircle(right.addr(), left.addr().timeout(limit));
    let problem = left.send(circle).wait().unwrap().unwrap_err();
    assert!(problem.contains("`left`") && problem.contains("`right`"), "{problem}");
    assert!(problem.contains("(in a circle: right waits for left waits for right)"), "{problem}");
    assert!(problem.contains("3s"), "{problem}");
}

/// Waits for the event of a circle with an actor of this name, and returns its actors.
fn circle_with(events: &mut impl Iterator<Item = Event>, name: &str) -> Vec<String> {
    let actors = events.find_map(|event| match event.kind {
        EventKind::WaitCycle { actors } if actors.concat().contains(name) => Some(actors),
        _ => None,
    });
    actors.unwrap()
}

#[test]
fn actors_that_block_for_each_other_are_an_event() {
    let named =
        |name: &str| AsyncManager::builder().name(name).start(Counter::new, 0).wait().unwrap();
    let mut events = fiber::stats::events();
    let (left, right) = (named("the left one"), named("the right one"));
    // One that waits for an actor which can go on is none.
    let other = counter(0);
    let busy = left.send(AskOther(other.addr(), 1));
    assert_eq!(busy.wait().unwrap(), Ok(1));
    let answer = left.send(AskInACircle(right.addr(), left.addr()));
    let actors = circle_with(&mut events, "the left");
    assert!(actors.len() == 2 && actors.concat().contains("the right one"), "{actors:?}");
    left.kill_process();
    answer.wait().unwrap_err();
}

#[test]
fn an_exported_actor_can_be_part_of_a_circle() {
    let far = AsyncManager::builder().name("far away").start(Counter::new, 0).wait().unwrap();
    let (addr, mut events) = (far.addr(), fiber::stats::events());
    let ends_it = thread::spawn(move || {
        let actors = circle_with(&mut events, "far away");
        far.kill_process();
        actors
    });
    System::new().block_on(async {
        let near = RemoteAddr::export(Counter::new(0).start()).unwrap();
        assert_eq!(near.send(Add(1)).await.unwrap(), 1);
        // This thread is that of the actor.
        addr.send(AskOther(near, 1)).wait().unwrap_err();
    });
    let mut actors = ends_it.join().unwrap();
    actors.sort();
    assert_eq!(actors, ["far away", type_name::<Counter>()]);
}

/// A message whose `Serialize` does not match its `Deserialize`.
#[derive(Debug, Deserialize)]
struct Crooked(#[expect(dead_code, reason = "no handler reads it")] u32);

impl Serialize for Crooked {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("crooked")
    }
}

impl Message for Crooked {
    type Result = ();
}

impl Handler<Crooked> for Counter {
    type Result = ();

    fn handle(&mut self, _: Crooked, _: &mut Context<Self>) {}
}

#[test]
fn a_message_that_cannot_be_deserialized_is_an_error_for_its_sender() {
    let manager = counter(0);
    let error = manager.send(Crooked(1)).wait().unwrap_err();
    assert!(error.to_string().contains("Crooked"), "{error}");
    let Error::Call { failure, .. } = error else { panic!("{error}") };
    assert_eq!(failure.kind, FailureKind::Arguments);
    assert_eq!(manager.send(Add(1)).wait().unwrap(), 1);
}
