//! Names of actors, which all processes of the session find.

use std::time::Duration;

use actix::prelude::*;
use fiber::stats::{Event, EventKind};
use fiber::supervisor::Restart;
use fiber::{AsyncManager, Error, Pool, Process, RemoteAddr, Supervisor, find, find_recipient};
use fiber_test_support::wait::wait_until;

use super::counter::{Add, Counter, Remark, Stop, WhichProcess, counter};
use super::{kill, stopped};

struct Other;

impl Actor for Other {
    type Context = Context<Self>;
}

/// Waits until no actor has a name.
fn wait_until_free(name: &str) {
    let is_free = || matches!(find::<Counter>(name).wait(), Err(Error::NoSuchName { .. }));
    wait_until("the end of the name's holder", is_free);
}

#[test]
fn every_process_finds_an_actor_by_its_name() {
    let manager =
        AsyncManager::builder().registered("found").start(Counter::new, 0).wait().unwrap();
    let add = |x: u64| {
        let grandchild = |x: u64| find::<Counter>("found").wait()?.send(Add(x)).wait();
        let there = Process::builder().try_spawn(grandchild, x).wait()?;
        Ok::<_, Error>((there, find::<Counter>("found").wait()?.send(Add(x)).wait()?))
    };
    assert_eq!(Process::builder().try_spawn(add, 1).wait().unwrap(), (1, 2));
    assert_eq!(find::<Counter>("found").wait().unwrap(), manager.addr());
    let again = |x: u64| find::<Counter>("found").wait().unwrap().send(Add(x)).wait().unwrap();
    Pool::new(2).unwrap().map(again, [1; 50]).wait().unwrap();
    assert_eq!(manager.send(Add(0)).wait().unwrap(), 52);
    let names = fiber::names().wait().unwrap();
    let found = names.iter().find(|named| named.name == "found").unwrap();
    assert!(found.actor.ends_with("counter::Counter"), "{found:?}");
}

#[test]
fn a_name_has_one_holder_and_the_error_says_which() {
    let (one, other) = (counter(1), counter(2));
    one.register("single").wait().unwrap();
    one.register("single").wait().unwrap();
    let error = other.register("single").wait().unwrap_err();
    assert!(matches!(error, Error::NameTaken { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("`single` is taken") && text.contains("counter::Counter"), "{text}");
    let second = AsyncManager::builder().registered("single").start(Counter::new, 0).wait();
    let text = second.unwrap_err().to_string();
    assert!(text.contains("`single` is taken"), "{text}");
    // Any process may take the name from the actor, and give it to another.
    let pass_on = |one: RemoteAddr<Counter>, other: RemoteAddr<Counter>| {
        one.unregister("single").wait()?;
        other.register("single").wait()
    };
    Process::builder().try_spawn(pass_on, (one.addr(), other.addr())).wait().unwrap();
    assert_eq!(find::<Counter>("single").wait().unwrap(), other.addr());
}

#[test]
fn a_restarted_actor_keeps_its_name() {
    let manager = AsyncManager::builder().registered("kept").start(Counter::new, 5).wait().unwrap();
    let addr = find::<Counter>("kept").wait().unwrap().resend();
    let before = addr.send(WhichProcess).wait().unwrap();
    kill(before);
    let again = find::<Counter>("kept").wait().unwrap().resend();
    assert_ne!(again.send(WhichProcess).wait().unwrap(), before);
    manager.stop().wait().unwrap();
    wait_until_free("kept");
    assert!(matches!(stopped(manager.register("kept").wait().unwrap_err()), _));
}

/// Returns the registered names that the tree shows at a branch.
fn shown(path: &str) -> Vec<String> {
    fiber::tree().find(path).map(|branch| branch.names.clone()).unwrap_or_default()
}

#[test]
fn the_tree_and_the_event_of_a_restart_show_the_names_of_an_actor() {
    let mut events = fiber::stats::events();
    let builder = AsyncManager::builder().name("teller").registered("shown");
    let manager = builder.start(Counter::new, 0).wait().unwrap();
    assert_eq!(shown("teller"), ["shown"]);
    // Another process gives it a name, and takes one.
    let give = |addr: RemoteAddr<Counter>| addr.register("also-shown").wait();
    Process::builder().try_spawn(give, manager.addr()).wait().unwrap();
    assert_eq!(shown("teller"), ["also-shown", "shown"]);
    let text = fiber::tree().find("teller").unwrap().to_string();
    assert!(text.contains("teller (registered as also-shown, shown)  running"), "{text}");
    manager.unregister("also-shown").wait().unwrap();
    let addr = manager.addr().resend();
    let before = addr.send(WhichProcess).wait().unwrap();
    kill(before);
    assert_ne!(addr.send(WhichProcess).wait().unwrap(), before);
    assert_eq!(shown("teller"), ["shown"]);
    let restart = |event: &Event| match &event.kind {
        EventKind::ChildRestarted { child, names, .. } => child == "teller" && names == &["shown"],
        _ => false,
    };
    let restart = events.find(restart).unwrap().to_string();
    assert!(restart.contains("teller (registered as shown) was killed by"), "{restart}");
    // Those of a child of a user's supervisor, too.
    let (child, _) =
        AsyncManager::builder().name("clerk").registered("clerk-1").child(Counter::new, 0).unwrap();
    let app = Supervisor::builder("desk").child(child).start().wait().unwrap();
    assert_eq!(shown("desk/clerk"), ["clerk-1"]);
    app.stop().wait().unwrap();
}

#[test]
fn an_actor_that_ends_loses_its_name() {
    System::new().block_on(async {
        let addr = RemoteAddr::export(Counter::new(0).start()).unwrap();
        addr.register("short").await.unwrap();
        addr.recipient::<Remark>().register("short").await.unwrap();
        addr.send(Stop).await.unwrap();
        while find::<Counter>("short").await.is_ok() {}
        assert!(find_recipient::<Remark>("short").await.is_err());
    });
}

#[test]
fn a_look_up_of_another_type_says_both_types() {
    let manager = counter(1);
    manager.register("typed").wait().unwrap();
    let error = find::<Other>("typed").wait().unwrap_err().to_string();
    assert!(error.contains("counter::Counter`, not `") && error.contains("Other"), "{error}");
    let error = find_recipient::<Add>("typed").wait().unwrap_err().to_string();
    assert!(error.contains("counter::Counter`, not `") && error.contains("Add"), "{error}");
    manager.recipient::<Add>().register("typed").wait().unwrap();
    let add = |x: u64| find_recipient::<Add>("typed").wait()?.send(Add(x)).wait();
    assert_eq!(Process::builder().try_spawn(add, 4).wait().unwrap(), 5);
    assert!(find_recipient::<Remark>("typed").wait().is_err());
    assert!(find::<Counter>("typed").wait().is_ok());
}

#[test]
fn a_name_that_nobody_has_is_an_error_or_waited_for() {
    let error = find::<Counter>("nobody").wait().unwrap_err();
    assert!(error.to_string().contains("no actor has the name `nobody`"), "{error}");
    let soon = fiber::wait_for::<Counter>("nobody").timeout(Duration::from_millis(20));
    assert!(matches!(soon.wait().unwrap_err(), Error::TimedOut { .. }));
    let wait = || fiber::wait_for::<Counter>("late").wait()?.send(Add(1)).wait();
    let waiting = [Process::builder().try_spawn(wait, ()), Process::builder().try_spawn(wait, ())];
    let manager = counter(0);
    manager.register("late").wait().unwrap();
    let counts = waiting.map(|process| process.wait().unwrap());
    assert_eq!(counts.into_iter().max(), Some(2));
}

#[test]
fn a_supervised_actor_has_its_name_before_it_has_started() {
    let builder = AsyncManager::builder().name("named").registered("supervised");
    let (child, addr) = builder.restart(Restart::Permanent).child(Counter::new, 3).unwrap();
    let app = Supervisor::builder("with-names").child(child).start().wait().unwrap();
    let found = find::<Counter>("supervised").wait().unwrap();
    assert_eq!((found.send(Add(1)).wait().unwrap(), found), (4, addr));
    app.stop().wait().unwrap();
    wait_until_free("supervised");
}
