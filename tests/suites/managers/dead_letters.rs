//! Messages without an answer that reach no actor, and full mailboxes.

use std::time::Instant;

use actix::prelude::*;
use fiber::manager::Full;
use fiber::stats::{EventKind, EventStream, events};
use fiber::{AsyncManager, Error, Process, RemoteAddr, supervisor::Restart};
use fiber_test_support::wait::{LONG, wait_for, wait_until};

use super::counter::{Add, Counter, Fail, Meet, Remark, Stop, counter, wait_until_it_begins};

/// Returns how many events tell `wanted` dead letters of an actor, and the problem of the last.
fn told(events: &mut EventStream, name: &str, wanted: u64) -> (u64, String) {
    let (mut told, mut number) = (0, 0);
    wait_for(&format!("{wanted} dead letters of `{name}`"), || {
        while let Some(event) = events.try_next() {
            match event.kind {
                EventKind::DeadLetters { actor, count, problem } if actor.contains(name) => {
                    (told, number) = (told + count, number + 1);
                    if told >= wanted {
                        assert_eq!(told, wanted);
                        return Ok((number, problem));
                    }
                }
                _ => {}
            }
        }
        Err(told)
    })
}

fn is_of_process(actor: &str) -> bool {
    actor.contains("actors of process")
}

fn counted(name: &str) -> u64 {
    let letters = fiber::stats().unwrap().report.dead_letters;
    letters.iter().filter(|letters| letters.actor.contains(name)).map(|letters| letters.count).sum()
}

#[test]
fn messages_to_an_actor_that_has_ended_are_counted_and_told_at_most_once_a_second() {
    let mut events = events();
    let manager = AsyncManager::builder().name("the late counter").start(Counter::new, 0);
    let manager = manager.wait().unwrap();
    manager.do_send(Add(1));
    manager.stop().wait().unwrap();
    let start = Instant::now();
    for _ in 0..3000 {
        manager.do_send(Add(1));
    }
    let (number, problem) = told(&mut events, "the late counter", 3000);
    assert!(number <= 2 + start.elapsed().as_secs(), "{number} events");
    assert!(problem.contains("asked to stop"), "{problem}");
    assert_eq!(counted("the late counter"), 3000);
    // Calls and refused messages have their errors.
    manager.send(Add(1)).wait().unwrap_err();
    let _ = manager.try_send(Add(1));
    assert!(counted("the late counter") <= 3001);
}

#[test]
fn messages_to_an_exported_actor_that_has_ended_are_counted() {
    System::new().block_on(async {
        let mut events = events();
        let addr = RemoteAddr::export(LateCounter.start()).unwrap();
        addr.send(Stop).await.unwrap();
        addr.join().await.unwrap();
        addr.do_send(Stop);
        let (_, problem) = told(&mut events, "LateCounter", 1);
        assert!(!problem.is_empty());
    });
}

struct LateCounter;

impl Actor for LateCounter {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl LateCounter {
    fn stop(&mut self, _: Stop, context: &mut Context<Self>) {
        context.stop();
    }
}

#[test]
fn messages_to_a_process_that_has_ended_are_counted() {
    let mut events = events();
    let export = || -> fiber::Result<RemoteAddr<LateCounter>> {
        System::new().block_on(async { RemoteAddr::export(LateCounter.start()) })
    };
    let addr = Process::builder().try_spawn(export, ()).wait().unwrap();
    // The process may take a moment to end; what it gets until then is lost with it.
    let problem = wait_for("a message that is known to be lost", || {
        addr.do_send(Stop);
        match events.try_next().map(|event| event.kind) {
            Some(EventKind::DeadLetters { actor, problem, .. }) if is_of_process(&actor) => {
                Ok(problem)
            }
            other => Err(Box::new(other)),
        }
    });
    assert!(problem.contains("can't be reached"), "{problem}");
    assert!(counted("actors of process") > 0);
}

#[test]
fn a_dropped_manager_makes_dead_letters_and_a_restart_makes_none() {
    let mut events = events();
    let builder = AsyncManager::builder().restart(Restart::Temporary).intensity(0, LONG);
    let manager = builder.start(Counter::new, 0).wait().unwrap();
    let addr = manager.addr();
    drop(manager);
    addr.join().wait().unwrap();
    addr.do_send(Remark("too late".into()));
    told(&mut events, addr.name(), 1);
    // That of an actor that restarts is not.
    let living = counter(0);
    living.send(Fail::Panic).wait().unwrap_err();
    living.do_send(Add(1));
    assert_eq!(living.send(Add(1)).wait().unwrap(), 2);
    assert_eq!(counted(living.name()), 0);
}

#[test]
fn a_full_mailbox_refuses_what_comes_or_drops_its_oldest_message() {
    for (full, refused) in [(Full::Fail, 2..5), (Full::DropOldest, 0..3)] {
        let folder = tempfile::tempdir().unwrap();
        let builder = AsyncManager::builder().mailbox(2).when_full(full);
        let manager = builder.start(Counter::new, 0).wait().unwrap();
        let place = folder.path().to_path_buf();
        let meet = manager.send(Meet { place: place.clone(), name: 0, others: 2 });
        // Its handler runs until there is another file.
        wait_until_it_begins(&place);
        let mut calls: Vec<_> = (0..5).map(|number| manager.send(Add(10u64.pow(number)))).collect();
        for call in calls.drain(refused.clone()) {
            let error = call.wait().unwrap_err();
            assert!(matches!(error, Error::MailboxFull { capacity: 2, .. }), "{full:?}: {error}");
            assert!(error.to_string().contains("(2 messages)"), "{full:?}: {error}");
        }
        std::fs::write(place.join("1"), "").unwrap();
        meet.wait().unwrap();
        let answers: Vec<_> = calls.into_iter().map(|call| call.wait().unwrap()).collect();
        let sums = if full == Full::Fail { [1, 11] } else { [1000, 11000] };
        assert_eq!(answers, sums, "{full:?}");
    }
}

#[test]
fn dropped_messages_without_an_answer_are_dead_letters_of_the_actors_process() {
    let folder = tempfile::tempdir().unwrap();
    let builder = AsyncManager::builder().mailbox(2).when_full(Full::DropOldest);
    let manager = builder.start(Crowded::default, ()).wait().unwrap();
    let place = folder.path().to_path_buf();
    let meet = manager.send(Meet { place: place.clone(), name: 0, others: 2 });
    wait_until_it_begins(&place);
    let mut events = events();
    (0..9).for_each(|number| manager.do_send(Add(number)));
    // The last one is refused when the others have arrived.
    let (_, problem) = told(&mut events, "Crowded", 7);
    assert!(problem.contains("its mailbox is full: 2 messages wait"), "{problem}");
    std::fs::write(place.join("1"), "").unwrap();
    meet.wait().unwrap();
    // This one may find the mailbox full, too, and drop the first of both.
    let sum = manager.send(Add(0)).wait().unwrap();
    assert!(sum == 7 + 8 || sum == 8, "{sum}");
}

/// Counts as `Counter` does, with dead letters of its own.
#[derive(Default)]
struct Crowded(u64);

impl Actor for Crowded {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Crowded {
    fn add(&mut self, add: Add) -> u64 {
        self.0 += add.0;
        self.0
    }

    fn meet(&mut self, meet: Meet) {
        std::fs::write(meet.place.join(meet.name.to_string()), "").unwrap();
        let met = || std::fs::read_dir(&meet.place).unwrap().count() >= meet.others;
        wait_until("a file of each", met);
    }
}
