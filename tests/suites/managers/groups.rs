//! Groups of actors, to which all processes of the session send messages.

use std::collections::HashMap;

use actix::prelude::*;
use fiber::{AsyncManager, Error, Group, Pool, Process, RemoteAddr};
use fiber_test_support::wait::wait_for;

use super::counter::{Add, Counter, Gate, Remark, counter};
use super::kill;

fn counters(counts: impl IntoIterator<Item = u64>) -> Vec<AsyncManager<Counter>> {
    let starting: Vec<_> =
        counts.into_iter().map(|count| AsyncManager::start(Counter::new, count)).collect();
    starting.into_iter().map(|starting| starting.wait().unwrap()).collect()
}

/// Waits until a group has so many members in this process's view.
fn wait_for_members(group: &Group<Add>, count: usize) {
    wait_for("members", || match group.members().wait().unwrap().len() {
        members if members == count => Ok(()),
        members => Err(members),
    });
}

#[test]
fn a_message_to_all_reaches_each_member_from_every_process() {
    let managers = counters([10, 20, 30]);
    let group = Group::<Add>::named("all").unwrap();
    for manager in &managers {
        group.join(&manager.recipient()).wait().unwrap();
        group.join(&manager.recipient()).wait().unwrap();
    }
    assert_eq!(group.send_all(Add(1)).all().wait().unwrap(), [11, 21, 31]);
    let add = |group: Group<Add>| group.send_all(Add(1)).all().wait().unwrap();
    let process = Process::spawn(add, group.clone());
    assert_eq!(process.wait().unwrap(), [12, 22, 32]);
    group.leave(&managers[1].recipient()).wait().unwrap();
    assert_eq!(group.send_all(Add(1)).all().wait().unwrap(), [13, 33]);
}

#[test]
fn actors_of_any_process_join_and_those_of_dead_ones_have_left() {
    let group = Group::<Add>::named("mortal").unwrap();
    let join = |group: Group<Add>| {
        System::new().block_on(async {
            let addr = RemoteAddr::export(Counter::new(5).start())?;
            group.join(&addr.recipient()).await?;
            std::future::pending::<fiber::Result<()>>().await
        })
    };
    let member = || Process::builder().try_spawn(join, group.clone());
    let processes = [member(), member()];
    let manager = counter(0);
    group.join(&manager.recipient()).wait().unwrap();
    wait_for_members(&group, 3);
    let mut sums = group.send_all(Add(1)).all().wait().unwrap();
    sums.sort_unstable();
    assert_eq!(sums, [1, 6, 6]);
    processes.iter().for_each(|process| process.kill());
    wait_for_members(&group, 1);
    // A managed actor stays a member when it is restarted.
    kill(manager.pid().unwrap());
    assert_eq!(group.members().wait().unwrap(), [manager.recipient()]);
    manager.stop().wait().unwrap();
    wait_for_members(&group, 0);
    let error = group.send(Add(1)).wait().unwrap_err();
    assert!(matches!(error, Error::NoMembers { .. }), "{error:?}");
    assert!(group.send_all(Add(1)).is_empty());
}

#[test]
fn a_message_goes_to_the_member_with_the_least_to_do() {
    let managers = counters([0, 0]);
    let group = Group::<Gate>::named("gates").unwrap();
    for manager in &managers {
        group.join(&manager.recipient()).wait().unwrap();
    }
    // One waits in each of the two, a third in one of them.
    let waiting: Vec<_> = (0..3).map(|_| group.send(Gate::Wait)).collect();
    let free = group.send(Gate::Release).wait().unwrap();
    assert_eq!(free, Err("released".into()));
    for _ in 0..2 {
        for manager in &managers {
            manager.send(Gate::Release).wait().unwrap().unwrap_err();
        }
    }
    let done = waiting.into_iter().map(|reply| reply.wait().unwrap().unwrap());
    assert_eq!(done.sum::<u64>(), 3);
}

#[test]
fn a_key_belongs_to_one_member_for_all_processes_and_a_new_member_takes_few() {
    let managers = counters([0, 0, 0]);
    let group = Group::<Key>::named("keys").unwrap();
    let (third, first) = managers.split_last().unwrap();
    for manager in first {
        group.join(&manager.recipient()).wait().unwrap();
    }
    let owner = |group: &Group<Key>| {
        let ask = |key: u32| (key, group.send_to(&key, Key).wait().unwrap());
        (0..100).map(ask).collect::<HashMap<u32, u32>>()
    };
    let before = owner(&group);
    let elsewhere = |group: Group<Key>| {
        let ask = |key: u32| (key, group.send_to(&key, Key).wait().unwrap());
        (0..100).map(ask).collect::<HashMap<u32, u32>>()
    };
    let pool = Pool::new(1).unwrap();
    assert_eq!(pool.apply(elsewhere, group.clone()).wait().unwrap(), before);
    group.join(&third.recipient()).wait().unwrap();
    let after = owner(&group);
    let new = third.pid().unwrap();
    let moved = after.iter().filter(|(key, owner)| before[*key] != **owner);
    let moved: Vec<u32> = moved.map(|(_, owner)| *owner).collect();
    assert!((10..70).contains(&moved.len()), "{moved:?}");
    assert!(moved.iter().all(|owner| *owner == new));
}

/// Asks a member for its process.
#[fiber::message(u32)]
struct Key;

#[fiber::handlers]
impl Counter {
    fn key(&mut self, _: Key) -> u32 {
        std::process::id()
    }
}

#[test]
fn messages_of_one_process_arrive_in_order_also_before_it_knows_the_members() {
    let manager = counter(0);
    let group = Group::<Append>::named("ordered").unwrap();
    group.join(&manager.recipient()).wait().unwrap();
    let send = |group: Group<Append>| {
        (0..200).for_each(|x| group.do_send_all(Append(x)));
        group.send(Append(200)).wait().unwrap()
    };
    let seen = Process::spawn(send, group.clone()).wait().unwrap();
    assert_eq!(seen, 201);
}

/// Has to come in the order of its numbers. The answer is how many have come.
#[fiber::message(u64)]
struct Append(u64);

#[fiber::handlers]
impl Counter {
    fn append(&mut self, Append(number): Append) -> u64 {
        let count = self.add(Add(0));
        assert_eq!(count, number);
        self.add(Add(1))
    }
}

#[test]
fn a_group_has_one_type_of_message() {
    let manager = counter(0);
    let adds = Group::<Add>::named("one-type").unwrap();
    adds.join(&manager.recipient()).wait().unwrap();
    let remarks = Group::<Remark>::named("one-type").unwrap();
    let error = remarks.join(&manager.recipient()).wait().unwrap_err().to_string();
    assert!(error.contains("group `one-type` is of type `") && error.contains("Add"), "{error}");
    let error = remarks.send(Remark("no".into())).wait().unwrap_err();
    assert!(matches!(error, Error::OtherType { .. }), "{error:?}");
}

#[test]
fn messages_without_an_answer_reach_the_member_that_calls_would_reach() {
    let managers = [counter(0), counter(0)];
    let group = Group::<Add>::named("told").unwrap();
    group.do_send(Add(7));
    for manager in &managers {
        group.join(&manager.recipient()).wait().unwrap();
    }
    for key in 0..20 {
        let before = group.send_to(&key, Add(0)).wait().unwrap();
        group.do_send_to(&key, Add(1));
        assert_eq!(group.send_to(&key, Add(0)).wait().unwrap(), before + 1);
    }
    (0..10).for_each(|_| group.do_send(Add(1)));
    let counts = group.send_all(Add(0)).all().wait().unwrap();
    assert_eq!(counts.iter().sum::<u64>(), 30);
    // The message of the group without members was counted.
    let letters = fiber::stats().unwrap().report.dead_letters;
    let lost: Vec<_> = letters.iter().filter(|letters| letters.actor.contains("told")).collect();
    assert_eq!((lost.len(), lost[0].count), (1, 1), "{lost:?}");
}
