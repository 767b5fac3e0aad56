//! Actor pools.

use std::collections::HashSet;

use fiber::actor_pool::{ActorPoolAddr, Routing};
use fiber::{ActorPool, AsyncManager, Process, error::ExitReason};

use super::counter::{Add, Counter, Gate, WhichProcess};
use super::{is_running, stopped};

fn which(pool: &ActorPool<Counter>) -> u32 {
    pool.send(WhichProcess).wait().unwrap()
}

#[test]
fn actors_of_a_pool_take_turns_and_keys_stay_with_their_actor() {
    let pool = ActorPool::builder().start(Counter::new, [0, 0, 0]).wait().unwrap();
    let pids: Vec<_> = (0..6).map(|_| which(&pool)).collect();
    assert_eq!(pids[..3], pids[3..], "the actors take turns");
    assert_eq!(HashSet::<u32>::from_iter(pids).len(), 3);
    let to_key = |key: &str| pool.send_to(key, WhichProcess).wait().unwrap();
    assert!((0..5).all(|_| to_key("left") == to_key("left")));
    assert_eq!(pool.broadcast(Add(7)).all().wait().unwrap(), [7, 7, 7]);
    assert_eq!((pool.size(), pool.addrs().len()), (3, 3));
    let error = ActorPool::builder().start(Counter::new, []).wait().unwrap_err();
    assert!(error.to_string().contains("at least 1 actor"), "{error}");
}

#[test]
fn the_least_loaded_actor_gets_the_message() {
    let pool = ActorPool::builder()
        .routing(Routing::LeastLoaded)
        .start(Counter::new, [0, 0])
        .wait()
        .unwrap();
    let busy = pool.addrs().map(|addr| (addr.send(WhichProcess).wait().unwrap(), addr));
    let busy: std::collections::HashMap<_, _> = busy.collect();
    let waits = pool.send(Gate::Wait);
    let others: HashSet<_> = (0..4).map(|_| which(&pool)).collect();
    assert_eq!(others.len(), 1, "the other actor is idle");
    let waiting = busy.iter().find(|(pid, _)| !others.contains(pid)).unwrap().1;
    waiting.send(Gate::Release).wait().unwrap().unwrap_err();
    waits.wait().unwrap().unwrap();
}

#[test]
fn an_actor_that_has_ended_for_good_gets_no_messages() {
    for routing in [Routing::RoundRobin, Routing::LeastLoaded] {
        let pool =
            ActorPool::builder().routing(routing).start(Counter::new, [0, 0]).wait().unwrap();
        let (first, second) = (which(&pool), which(&pool));
        assert_ne!(first, second, "they take turns");
        let mut managers = pool.managers();
        managers.find(|manager| manager.pid() == Some(first)).unwrap().stop().wait().unwrap();
        assert!((0..10).all(|_| which(&pool) == second));
        drop(managers);
        let left = pool.managers().find(|manager| manager.pid() == Some(second)).unwrap();
        left.stop().wait().unwrap();
        assert_eq!(stopped(pool.send(WhichProcess).wait().unwrap_err()), ExitReason::Shutdown);
    }
}

#[test]
fn the_address_of_a_pool_routes_in_other_processes_and_skips_actors_that_have_ended() {
    let pool = ActorPool::builder().start(Counter::new, [0, 0]).wait().unwrap();
    let pids = |addr: ActorPoolAddr<Counter>| -> fiber::Result<Vec<u32>> {
        (0..6).map(|_| addr.send(WhichProcess).wait()).collect()
    };
    let there = || Process::builder().try_spawn(pids, pool.addr()).wait().unwrap();
    let seen = there();
    assert_eq!(seen[..2], seen[2..4], "the actors take turns");
    assert_eq!(HashSet::<u32>::from_iter(seen).len(), 2);

    let ended = pool.managers().next().unwrap();
    ended.stop().wait().unwrap();
    let left = pool.managers().nth(1).unwrap().pid().unwrap();
    let failing = |addr: ActorPoolAddr<Counter>| -> (usize, HashSet<u32>) {
        let answers: Vec<_> = (0..10).map(|_| addr.send(WhichProcess).wait()).collect();
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        (failed, answers.into_iter().flatten().collect())
    };
    let (failed, answered) = Process::spawn(failing, pool.addr()).wait().unwrap();
    assert_eq!(answered, HashSet::from([left]));
    assert!(failed <= 1, "{failed} messages went to an actor that was known to have ended");
}

#[test]
fn a_pool_grows_and_shrinks_and_moves_few_keys() {
    let mut pool = ActorPool::builder().start(Counter::new, [0, 0, 0]).wait().unwrap();
    let addr = pool.addr();
    let owners = |pool: &ActorPoolAddr<Counter>| -> Vec<u32> {
        (0..60).map(|key| pool.send_to(&key, WhichProcess).wait().unwrap()).collect()
    };
    let before = owners(&addr);
    let added = AsyncManager::start(Counter::new, 0).wait().unwrap();
    let new = added.pid().unwrap();
    pool.add(added);
    let grown = owners(&addr);
    assert!(grown.contains(&new));
    assert!(before.iter().zip(&grown).all(|(before, after)| after == before || *after == new));
    let everywhere: HashSet<_> = (0..4).map(|_| which(&pool)).collect();
    assert_eq!((everywhere.len(), pool.size(), addr.size()), (4, 4, 4));

    // The second of the first ones leaves its keys to the others, of which none moves.
    let (second, left) = (pool.addrs().nth(1).unwrap(), pool.managers().nth(1).unwrap().pid());
    pool.remove(&second).unwrap().wait().unwrap();
    let shrunk = owners(&addr);
    let left = left.unwrap();
    assert!(!is_running(left));
    assert!(grown.iter().zip(&shrunk).all(|(before, after)| after == before || *before == left));
    // Another process has the same actors for the keys.
    let there = Process::builder().try_spawn(
        |pool: ActorPoolAddr<Counter>| -> fiber::Result<Vec<u32>> {
            (0..60).map(|key| pool.send_to(&key, WhichProcess).wait()).collect()
        },
        pool.addr(),
    );
    assert_eq!(there.wait().unwrap(), shrunk);
    assert_eq!(pool.managers().len(), 3);
}

#[test]
fn an_actor_that_is_removed_answers_the_calls_of_the_pool_first() {
    let mut pool = ActorPool::builder().start(Counter::new, [0, 0]).wait().unwrap();
    let first = pool.addrs().next().unwrap();
    let waits = pool.send(Gate::Wait); // goes to the first
    let removed = pool.remove(&first).unwrap();
    assert_eq!(HashSet::<u32>::from_iter((0..4).map(|_| which(&pool))).len(), 1);
    assert!(first.connected());
    first.send(Gate::Release).wait().unwrap().unwrap_err();
    assert_eq!(waits.wait().unwrap(), Ok(1));
    removed.wait().unwrap();
    assert_eq!(stopped(first.send(Add(1)).wait().unwrap_err()), ExitReason::Shutdown);

    let error = pool.remove(&first).err().unwrap().to_string();
    assert!(error.contains("the pool has no such actor"), "{error}");
    let last = pool.addrs().next().unwrap();
    let error = pool.remove(&last).err().unwrap().to_string();
    assert!(error.contains("only actor: add another one, or stop the pool"), "{error}");
    assert_eq!(pool.send(Add(1)).wait().unwrap(), 1);
}

#[test]
fn a_pool_with_resend_answers_all_calls_although_its_processes_are_killed() {
    let pool = ActorPool::builder().resend().start(Counter::new, [0, 0]).wait().unwrap();
    let calls: Vec<_> = (0..1000).map(|_| pool.send(Add(0))).collect();
    pool.kill_processes();
    calls.into_iter().for_each(|call| assert_eq!(call.wait().unwrap(), 0));
    let pids: Vec<_> = pool.managers().filter_map(AsyncManager::pid).collect();
    let joined = pool.join();
    pool.stop().wait().unwrap();
    assert_eq!(joined.wait().unwrap(), [ExitReason::Shutdown, ExitReason::Shutdown]);
    assert!(pids.into_iter().all(|pid| !is_running(pid)));
}
