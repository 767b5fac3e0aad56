//! Managed actors that share a process.

use std::path::PathBuf;
use std::time::Duration;

use actix::prelude::*;
use fiber::error::{ExitReason, FailureKind};
use fiber::manager::{ManagerBuilder, Snapshots};
use fiber::stats::EventKind;
use fiber::supervisor::{Backoff, Restart};
use fiber::{ActorPool, AsyncManager, Entities, Error, Journal};
use fiber_test_support::wait::wait_until;

use super::counter::{Add, AskOther, Counter, Fail, Here, Stop, WhichProcess, counter};
use super::{is_running, kill, stopped, watcher};

/// An option for an actor whose process is restarted as often as a test likes.
fn steady() -> ManagerBuilder {
    AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1)).backoff(Backoff::none())
}

fn group(name: &str) -> ManagerBuilder {
    steady().group(name)
}

/// Kills the process of an actor, and waits for the next one.
fn replace_process<A: Actor>(manager: &AsyncManager<A>) {
    let before = manager.pid().unwrap();
    kill(before);
    wait_until("the next process", || manager.pid().is_some_and(|pid| pid != before));
}

/// Adds to a counter, whose process may be about to restart.
fn add(counter: &AsyncManager<Counter>, number: u64) -> u64 {
    counter.addr().resend().send(Add(number)).wait().unwrap()
}

/// Creates a file when it has stopped.
struct Leaves(PathBuf);

impl Actor for Leaves {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Context<Self>) {
        std::fs::write(&self.0, "").unwrap();
    }
}

fn leaves(path: PathBuf) -> Leaves {
    Leaves(path)
}

#[test]
fn actors_of_one_process_are_addressed_one_by_one() {
    let first = counter(10);
    let second = first.spawn(Counter::new, 20).wait().unwrap();
    let third = AsyncManager::builder().name("third").within(&second);
    let third = third.start(Counter::new, 30).wait().unwrap();
    for (actor, count) in [(&first, 11), (&second, 21), (&third, 31)] {
        assert_eq!(actor.send(Add(1)).wait().unwrap(), count);
        assert_eq!(actor.send(WhichProcess).wait().unwrap(), first.pid().unwrap());
        assert_eq!(actor.pid(), first.pid());
        assert_eq!(actor.send(Here).wait().unwrap(), actor.addr());
    }
    assert_eq!(third.name(), "third");
    assert_ne!(first.addr(), second.addr());
    // Others reach them, too.
    let elsewhere = counter(0);
    assert_eq!(elsewhere.send(AskOther(third.addr(), 1)).wait().unwrap(), Ok(32));
    // An actor that blocks for one of its own thread would wait for ever.
    let problem = second.send(AskOther(third.addr(), 1)).wait().unwrap().unwrap_err();
    assert_eq!(problem, Error::WouldDeadlock.to_string());
    wait_until("the message", || third.send(Add(0)).wait().unwrap() == 33);
}

#[test]
fn a_panic_costs_one_actor() {
    System::new().block_on(async {
        let mut events = fiber::stats::events();
        let first = steady().name("one-of").start(Counter::new, 1).await.unwrap();
        let builder = steady().name("panics").within(&first);
        let second = builder.start(Counter::new, 2).await.unwrap();
        let (recipient, mut ends) = watcher();
        second.watch(recipient).await.unwrap();
        let (recipient, mut others) = watcher();
        first.watch(recipient).await.unwrap();
        assert_eq!(first.send(Add(1)).await.unwrap(), 2);
        assert_eq!(second.send(Add(1)).await.unwrap(), 3);
        match second.send(Fail::Panic).await.unwrap_err() {
            Error::Call { failure, .. } => assert_eq!(failure.kind, FailureKind::Panicked),
            other => panic!("{other:?}"),
        }
        let down = ends.recv().await.unwrap();
        assert!(matches!(&down, ExitReason::Panicked(text) if text.contains("too much")), "{down}");
        assert_eq!(second.send(Add(1)).await.unwrap(), 3, "it is new");
        assert_eq!(first.send(Add(1)).await.unwrap(), 3, "it is the same");
        // The tree shows it below its process.
        let branch = || fiber::tree().find("one-of/panics").unwrap().clone();
        wait_until("the restart", || branch().restarts == 1);
        assert_eq!(branch().last_exit, Some(down.clone()));
        assert_eq!(fiber::tree().find("one-of").unwrap().restarts, 0);
        let restarted = events.find_map(|event| match event.kind {
            EventKind::ChildRestarted { child, reason, .. } if child.contains("one-of") => {
                Some((child, reason))
            }
            _ => None,
        });
        assert_eq!(restarted.unwrap(), ("one-of/panics".into(), down));
        assert!(others.try_recv().is_err() && ends.try_recv().is_err());
    });
}

#[test]
fn an_actor_that_fails_too_often_ends_alone() {
    System::new().block_on(async {
        let mut events = fiber::stats::events();
        let first = steady().start(Counter::new, 1).await.unwrap();
        let limited = AsyncManager::builder().name("gives-up-alone");
        let limited = limited.intensity(1, Duration::from_secs(600));
        let second = limited.within(&first).start(Counter::new, 2).await.unwrap();
        let (recipient, mut ends) = watcher();
        second.watch(recipient).await.unwrap();
        for _ in 0..2 {
            second.send(Fail::Panic).await.unwrap_err();
        }
        let gone = second.join().await.unwrap();
        assert!(matches!(gone, ExitReason::IntensityReached { restarts: 1, .. }), "{gone}");
        let gave_up = events.find_map(|event| match event.kind {
            EventKind::GaveUp { child, reason } => {
                child.ends_with("/gives-up-alone").then_some(reason)
            }
            _ => None,
        });
        assert_eq!(gave_up.as_ref(), Some(&gone));
        assert_eq!(stopped(second.send(Add(1)).await.unwrap_err()), gone);
        assert_eq!((second.pid(), second.connected()), (None, false));
        for _ in 0..2 {
            assert!(matches!(ends.recv().await.unwrap(), ExitReason::Panicked(_)));
        }
        assert_eq!(ends.recv().await, None);
        assert_eq!(first.send(Add(1)).await.unwrap(), 2);
        // One that stops itself ends alone, too.
        let third = first.spawn(Counter::new, 3).await.unwrap();
        third.send(Stop).await.unwrap();
        assert_eq!(third.join().await.unwrap(), ExitReason::Normal);
        // A permanent one does not.
        let permanent = steady().restart(Restart::Permanent).within(&first);
        let fourth = permanent.start(Counter::new, 4).await.unwrap();
        fourth.send(Stop).await.unwrap();
        assert_eq!(fourth.addr().resend().send(Add(1)).await.unwrap(), 5);
        assert_eq!(first.send(Add(1)).await.unwrap(), 3);
    });
}

#[test]
fn the_death_of_the_process_restarts_all_and_each_watcher_hears_of_it_once() {
    System::new().block_on(async {
        let first = steady().start(Counter::new, 1).await.unwrap();
        let keeping = steady().snapshots(Snapshots::before_answers()).within(&first);
        let mut actors = Vec::new();
        for number in 0..10 {
            actors.push(keeping.clone().start(Counter::new, number).await.unwrap());
        }
        let plain = first.spawn(Counter::new, 100).await.unwrap();
        let temporary = steady().restart(Restart::Temporary).within(&first);
        let temporary = temporary.start(Counter::new, 5).await.unwrap();
        let (recipient, mut ends) = watcher();
        for actor in actors.iter().chain([&plain, &temporary]) {
            actor.watch(recipient.clone()).await.unwrap();
        }
        let addresses: Vec<_> = actors.iter().map(|actor| actor.addr().resend()).collect();
        for (number, address) in addresses.iter().enumerate() {
            assert_eq!(address.send(Add(7)).await.unwrap(), number as u64 + 7);
        }
        plain.send(Add(1)).await.unwrap();
        replace_process(&actors[3]);
        for (number, address) in addresses.iter().enumerate() {
            assert_eq!(address.send(Add(0)).await.unwrap(), number as u64 + 7);
        }
        assert_eq!(plain.send(Add(1)).await.unwrap(), 101, "it has no snapshots");
        assert_eq!(stopped(temporary.send(Add(1)).await.unwrap_err()), ExitReason::Signal(9));
        for _ in 0..12 {
            assert_eq!(ends.recv().await.unwrap(), ExitReason::Signal(9));
        }
        // It goes on, again and again.
        for round in 1..4 {
            assert_eq!(addresses[9].send(Add(1)).await.unwrap(), 16 + round);
            replace_process(&first);
            assert_eq!(addresses[9].send(Add(0)).await.unwrap(), 16 + round);
        }
        first.stop().await.unwrap();
        for _ in 0..11 {
            while ends.recv().await.unwrap() != ExitReason::Shutdown {}
        }
        assert!(ends.try_recv().is_err());
    });
}

#[test]
fn calls_without_an_answer_fail_with_the_death_of_the_process() {
    let first = steady().start(Counter::new, 1).wait().unwrap();
    let second = first.spawn(Counter::new, 2).wait().unwrap();
    let pending = second.send(Fail::Never);
    second.send(Add(1)).wait().unwrap();
    kill(second.pid().unwrap());
    assert_eq!(stopped(pending.wait().unwrap_err()), ExitReason::Signal(9));
    // One that is started now gets into the next process.
    let third = first.spawn(Counter::new, 3).wait().unwrap();
    assert_eq!((add(&third, 1), add(&second, 1)), (4, 3));
}

#[test]
fn a_stopped_or_dropped_actor_ends_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let first = counter(1);
    let second = first.spawn(leaves, file("second")).wait().unwrap();
    let third = first.spawn(leaves, file("third")).wait().unwrap();
    second.stop().wait().unwrap();
    assert!(file("second").exists(), "its `stopped` has run");
    assert_eq!(second.join().wait().unwrap(), ExitReason::Shutdown);
    let addr = third.addr();
    drop(third);
    assert_eq!(addr.join().wait().unwrap(), ExitReason::Dropped);
    assert!(file("third").exists());
    // So does one whose reply is dropped before it has started.
    drop(first.spawn(leaves, file("fourth")));
    wait_until("the end of the fourth", || file("fourth").exists());
    assert_eq!(first.send(Add(1)).wait().unwrap(), 2);
}

/// Never stops by itself.
struct Stays;

impl Actor for Stays {
    type Context = Context<Self>;

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        Running::Continue
    }
}

#[test]
fn an_actor_that_does_not_stop_in_time_is_dropped() {
    let first = counter(1);
    let builder = steady().shutdown(Duration::from_millis(10)).within(&first);
    let second = builder.start(|()| Stays, ()).wait().unwrap();
    second.stop().wait().unwrap();
    assert_eq!(second.join().wait().unwrap(), ExitReason::Shutdown);
    assert_eq!(first.send(Add(1)).wait().unwrap(), 2);
}

#[test]
fn the_actors_in_a_process_end_with_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let first = counter(1);
    let pid = first.pid().unwrap();
    let second = first.spawn(leaves, file("second")).wait().unwrap();
    first.stop().wait().unwrap();
    assert!(file("second").exists() && !is_running(pid));
    assert_eq!(second.join().wait().unwrap(), ExitReason::Shutdown);
    let error = first.spawn(Counter::new, 1).wait().unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
    // The first one stops itself.
    let first = counter(1);
    let second = first.spawn(leaves, file("of-another")).wait().unwrap();
    first.send(Stop).wait().unwrap();
    assert!(second.join().wait().unwrap().is_normal());
    assert!(file("of-another").exists());
    assert_eq!(first.join().wait().unwrap(), ExitReason::Normal);
    // Its restarts are used up.
    let first = AsyncManager::builder().intensity(0, Duration::from_secs(60));
    let first = first.start(Counter::new, 1).wait().unwrap();
    let second = first.spawn(Counter::new, 2).wait().unwrap();
    kill(first.pid().unwrap());
    let reason = second.join().wait().unwrap();
    assert!(matches!(reason, ExitReason::IntensityReached { .. }), "{reason}");
    assert_eq!(first.join().wait().unwrap(), reason);
}

#[test]
fn a_group_has_one_process_which_ends_with_the_last_actor() {
    let starting: Vec<_> =
        (0..20).map(|number| group("accounts").start(Counter::new, number)).collect();
    let counters: Vec<_> = starting.into_iter().map(|reply| reply.wait().unwrap()).collect();
    let pid = counters[0].pid().unwrap();
    assert!(counters.iter().all(|counter| counter.pid() == Some(pid)));
    assert_ne!(group("others").start(Counter::new, 0).wait().unwrap().pid(), Some(pid));
    kill(pid);
    let again: Vec<_> = counters.iter().map(|counter| add(counter, 1)).collect();
    assert_eq!(again, (1..=20).collect::<Vec<_>>());
    let pid = counters[0].pid().unwrap();
    let (last, former) = counters.split_last().unwrap();
    for counter in former {
        counter.stop().wait().unwrap();
    }
    assert_eq!(last.send(Add(1)).wait().unwrap(), 21);
    last.stop().wait().unwrap();
    // The handles are still there.
    wait_until("the end of the group's process", || !is_running(pid));
    let next = group("accounts").start(Counter::new, 5).wait().unwrap();
    assert_eq!(next.send(Add(1)).wait().unwrap(), 6);
    assert_ne!(next.pid(), Some(pid));
}

#[test]
fn a_pool_starts_an_actor_for_each_of_its_actors() {
    let pool = ActorPool::builder().start(Counter::new, [0, 0, 0]).wait().unwrap();
    let more = pool.spawn(Counter::new, [1, 2, 3]).wait().unwrap();
    for ((manager, actor), count) in pool.managers().zip(&more).zip([1, 2, 3]) {
        assert_eq!(actor.pid(), manager.pid());
        assert_eq!(actor.send(Add(0)).wait().unwrap(), count);
    }
    let error = pool.spawn(Counter::new, [1, 2]).wait().unwrap_err().to_string();
    assert!(error.contains("2 items") && error.contains("3 actors"), "{error}");
}

#[test]
fn a_first_start_that_fails_is_an_error_and_costs_nothing_else() {
    let first = counter(1);
    let refuse = |_: u64| -> Counter { panic!("no counter today") };
    let builder = AsyncManager::builder().name("refused").within(&first);
    let error = builder.start(refuse, 1).wait().unwrap_err();
    assert!(matches!(error, Error::Start { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("refused") && text.contains("no counter today"), "{text}");
    assert_eq!(first.send(Add(1)).wait().unwrap(), 2);
}

#[test]
fn a_start_that_fails_after_the_death_of_the_process_is_retried_as_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = steady().start(Counter::new, 1).wait().unwrap();
    let twice = |folder: PathBuf| {
        let number = std::fs::read_dir(&folder).unwrap().count();
        std::fs::write(folder.join(number.to_string()), "").unwrap();
        assert!(number != 1, "not the second time");
        Counter::new(number as u64)
    };
    let second = steady().within(&first).start(twice, directory.path().into()).wait().unwrap();
    replace_process(&first);
    assert_eq!(second.send(Add(0)).wait().unwrap(), 2);
    // With fewer restarts, that ends the actor.
    let directory = tempfile::tempdir().unwrap();
    let limited = AsyncManager::builder().intensity(0, Duration::from_secs(600)).within(&first);
    let third = limited.start(twice, directory.path().into()).wait().unwrap();
    first.kill_process();
    let reason = third.join().wait().unwrap();
    assert!(matches!(reason, ExitReason::IntensityReached { .. }), "{reason}");
    assert_eq!(first.send(Add(1)).wait().unwrap(), 2);
}

#[test]
fn a_durable_actor_among_others_continues_in_the_next_life() {
    let directory = tempfile::tempdir().unwrap();
    let first = steady().start(Counter::new, 1).wait().unwrap();
    for run in 1..4 {
        let builder = steady().name("kept-together").within(&first);
        let builder = builder.snapshots(Snapshots::before_answers());
        let builder = builder.durable(Journal::at(directory.path()));
        let actor = builder.start(Counter::new, 0).wait().unwrap();
        assert_eq!(actor.send(Add(1)).wait().unwrap(), run);
        replace_process(&first);
        assert_eq!(actor.send(Add(0)).wait().unwrap(), run);
        actor.stop().wait().unwrap();
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let first = counter(1);
    let within = || AsyncManager::builder().within(&first);
    let invalid = |error: Error| matches!(error, Error::Invalid { .. });
    assert!(invalid(within().child(Counter::new, 0).unwrap_err()));
    assert!(invalid(group("no-child").child(Counter::new, 0).unwrap_err()));
    let start = |builder: ManagerBuilder| builder.start(Counter::new, 0).wait().unwrap_err();
    assert!(invalid(start(within().on_host("anywhere"))));
    assert!(invalid(start(within().beside(&first))));
    assert!(invalid(start(within().name("a/b"))));
    assert!(invalid(start(group("a/b"))));
    let pool = ActorPool::builder().spread().manager(|_| within());
    assert!(invalid(pool.start(Counter::new, [0, 0]).wait().unwrap_err()));
    let entities = Entities::builder("together").manager(|_| within());
    assert!(invalid(entities.start(|_: String, ()| Counter::new(0), ()).wait().unwrap_err()));
}
