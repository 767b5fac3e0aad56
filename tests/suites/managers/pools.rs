//! Actor pools.

use std::collections::HashSet;

use fiber::{ActorPool, AsyncManager, actor_pool::Routing, error::ExitReason};

use super::counter::{Add, Counter, Gate, WhichProcess};
use super::{exists, stopped};

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
    let everywhere: Vec<_> =
        pool.broadcast(Add(7)).into_iter().map(|call| call.wait().unwrap()).collect();
    assert_eq!(everywhere, [7, 7, 7]);
    assert_eq!((pool.len(), pool.addrs().len()), (3, 3));
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
    let busy = pool.addrs().into_iter().map(|addr| (addr.send(WhichProcess).wait().unwrap(), addr));
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
fn a_pool_with_resend_answers_all_calls_although_its_processes_are_killed() {
    let pool = ActorPool::builder().resend().start(Counter::new, [0, 0]).wait().unwrap();
    let calls: Vec<_> = (0..1000).map(|_| pool.send(Add(0))).collect();
    pool.managers().for_each(AsyncManager::kill_process);
    calls.into_iter().for_each(|call| assert_eq!(call.wait().unwrap(), 0));
    let pids: Vec<_> = pool.managers().filter_map(AsyncManager::pid).collect();
    let joined = pool.join();
    pool.stop().wait().unwrap();
    assert_eq!(joined.wait().unwrap(), [ExitReason::Shutdown, ExitReason::Shutdown]);
    assert!(pids.into_iter().all(|pid| !exists(pid)));
}
