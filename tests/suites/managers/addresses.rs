//! Addresses of managed and exported actors, in other processes.

use std::collections::HashSet;

use actix::prelude::*;
use fiber::supervisor::ChildSpec;
use fiber::{Error, Pool, Process, RemoteAddr, Supervisor, error::ExitReason};

use super::counter::{Add, AskOther, Counter, Fail, Here, Remark, Stop, counter};
use super::stopped;

#[test]
fn an_address_works_in_every_process_that_it_reaches() {
    let manager = counter(0);
    let add = |addr: RemoteAddr<Counter>| {
        let grandchild = |addr: RemoteAddr<Counter>| addr.send(Add(1)).wait().unwrap();
        let there = Process::spawn(grandchild, addr.clone()).wait().unwrap();
        (there, addr.send(Add(1)).wait().unwrap(), addr)
    };
    let (first, second, back) = Process::spawn(add, manager.addr()).wait().unwrap();
    assert_eq!((first, second), (1, 2));
    assert_eq!(back, manager.addr());
    let pool = Pool::new(2).unwrap();
    let one_more = |addr: RemoteAddr<Counter>| addr.send(Add(1)).wait().unwrap();
    let counts = pool.map(one_more, vec![manager.addr(); 50]).wait().unwrap();
    assert_eq!(HashSet::<u64>::from_iter(counts), HashSet::from_iter(3..53));
    let other = counter(100);
    assert_eq!(other.send(AskOther(manager.addr(), 0)).wait().unwrap(), Ok(52));
}

#[test]
fn an_exported_actor_gets_messages_in_order_even_if_its_mailbox_is_full() {
    System::new().block_on(async {
        let local = Counter::new(0).start();
        let addr = RemoteAddr::export(local.clone()).unwrap();
        let add = |addr: RemoteAddr<Counter>| {
            let answers: Vec<_> = (0..100).map(|_| addr.send(Add(1))).collect();
            answers.into_iter().map(|answer| answer.wait().unwrap()).collect::<Vec<_>>()
        };
        let counts = Process::spawn(add, addr.clone()).await.unwrap();
        assert_eq!(counts, Vec::from_iter(1..=100));
        assert_eq!(local.send(Add(0)).await.unwrap(), 100);
        assert_eq!(addr.send(Add(1)).await.unwrap(), 101);
        addr.send(Stop).await.unwrap();
        assert_eq!(stopped(addr.send(Add(1)).await.unwrap_err()), ExitReason::Normal);
        assert_eq!(addr.join().await.unwrap(), ExitReason::Normal);
    });
}

#[test]
fn an_address_of_another_session_is_an_error() {
    let manager = counter(0);
    let mut other = serde_json::to_value(manager.addr()).unwrap();
    other["target"]["session"] = 7.into();
    let other: RemoteAddr<Counter> = serde_json::from_value(other).unwrap();
    let error = other.send(Add(1)).wait().unwrap_err();
    assert!(matches!(error, Error::OtherSession { .. }), "{error}");
    assert!(!other.connected());
}

#[test]
fn a_call_to_an_actor_whose_process_has_ended_fails_with_the_reason() {
    let export = || {
        let system = System::new();
        let addr = system.block_on(async { RemoteAddr::export(Counter::new(0).start()).unwrap() });
        drop(system);
        addr
    };
    let addr = Process::spawn(export, ()).wait().unwrap();
    let error = addr.send(Add(1)).wait().unwrap_err();
    assert!(matches!(stopped(error), ExitReason::LinkLost(_)));
}

#[test]
fn messages_that_a_process_sent_before_its_end_are_handled() {
    let manager = counter(0);
    let send_all = |addr: RemoteAddr<Counter>| {
        (0..64).for_each(|_| addr.do_send(Remark("x".repeat(1 << 20))));
        addr.do_send(Add(1));
    };
    let all = (64 << 20) + 1;
    Process::spawn(send_all, manager.addr()).wait().unwrap();
    assert_eq!(manager.send(Add(0)).wait().unwrap(), all);

    let pool = Pool::new(1).unwrap();
    pool.apply(send_all, manager.addr()).wait().unwrap();
    pool.stop().wait().unwrap();
    assert_eq!(manager.send(Add(0)).wait().unwrap(), 2 * all);
}

#[test]
fn the_address_of_a_supervised_actor_travels_and_survives_restarts() {
    let child = ChildSpec::actor("counter", || Counter::new(0));
    let app = Supervisor::builder("traveller").child(child).start().wait().unwrap();
    let counter = app.child::<Counter>("counter").unwrap();
    let addr = RemoteAddr::export(counter.clone()).unwrap();
    assert_eq!((addr.name(), &addr), ("traveller/counter", &counter.send(Here).wait().unwrap()));
    let use_it = |addr: RemoteAddr<Counter>| {
        let before = addr.send(Add(2)).wait().unwrap();
        let panic = stopped(addr.send(Fail::Panic).wait().unwrap_err()).to_string();
        let after: Vec<_> = (0..3).map(|_| addr.send(Add(1))).collect();
        let after: Vec<_> = after.into_iter().map(|answer| answer.wait().unwrap()).collect();
        (before, panic, after)
    };
    let (before, panic, after) = Process::spawn(use_it, addr.clone()).wait().unwrap();
    assert_eq!((before, after), (2, vec![1, 2, 3]));
    assert!(panic.contains("that is too much"), "{panic}");
    app.stop().wait().unwrap();
    assert_eq!(stopped(addr.send(Add(1)).wait().unwrap_err()), ExitReason::Shutdown);
    assert_eq!(addr.join().wait().unwrap(), ExitReason::Shutdown);
}

#[test]
fn a_managed_actor_knows_its_address() {
    let manager = counter(0);
    assert_eq!(manager.send(Here).wait().unwrap(), manager.addr());
    let error = fiber::this::<Counter>().unwrap_err().to_string();
    assert!(error.contains("counter::Counter"), "{error}");
}
