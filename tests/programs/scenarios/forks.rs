//! Programs that fork, and that change their user.

#![allow(unsafe_code)]

use std::io::Write;
use std::pin::pin;
use std::task::{Context as Polled, Poll, Waker};

use actix::prelude::*;
use fiber::topic::{Slow, Topic};
use fiber::{Array, AsyncManager, Error, Pool, Process, Queue, Reduction, Ring, RingNode};
use fiber_test_support::scenario;
use futures_util::StreamExt;
use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

struct Adder(u64);

impl Actor for Adder {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Add(u64);

#[fiber::handlers]
impl Adder {
    fn add(&mut self, Add(x): Add) -> u64 {
        self.0 += x;
        self.0
    }
}

/// Forks, and returns `true` in the fork. In the original it waits for the end of the fork.
fn is_fork() -> bool {
    std::io::stdout().flush().unwrap();
    // SAFETY: what a fork may not do, as other threads of the original may hold locks, is what the
    // tests are about.
    let fork = unsafe { libc::fork() };
    if fork == 0 {
        return true;
    }
    let fork = rustix::process::Pid::from_raw(fork).expect("the system can fork");
    let (_, status) = waitpid(Some(fork), WaitOptions::empty()).unwrap().unwrap();
    println!("the fork ended with {:?}", status.exit_status());
    false
}

fn sum(array: Array<u8>) -> u64 {
    array.iter().map(|x| u64::from(*x)).sum()
}

/// Polls a future once, as an executor of a fork does.
fn awaited<T>(future: impl Future<Output = fiber::Result<T>>) -> fiber::Result<T> {
    match pin!(future).poll(&mut Polled::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it would wait for ever"),
    }
}

fn is_forked<T>(what: &str, outcome: fiber::Result<T>) {
    let is_forked = matches!(outcome, Err(Error::Forked));
    println!("{what}: {}", outcome.err().map_or("no error".into(), |error| error.to_string()));
    assert!(is_forked, "{what}");
}

#[scenario("forks")]
fn forks() {
    fiber::init();
    let pool = Pool::builder().processes(1).build().unwrap();
    let worker = pool.apply(std::process::id, ()).wait().unwrap();
    let (queue, filled) = (Queue::<u64>::new().unwrap(), Queue::<u64>::new().unwrap());
    filled.put(1).wait().unwrap();
    let adder = AsyncManager::start(Adder, 10).wait().unwrap();
    let topic = Topic::<u64>::new().unwrap();
    let subscribe = || topic.subscribe(Slow::Wait).wait().unwrap();
    let (mut messages, blocking, kept) = (subscribe(), subscribe(), subscribe());
    let ring = Ring::run(2, |mut node: RingNode| node.barrier().unwrap(), ());
    let call = pool.apply(std::process::id, ());
    let awaited_call = pool.apply(std::process::id, ());
    let output = pool.apply(std::process::id, ()).output();
    let empty = Queue::<u64>::new().unwrap();
    let array = pool.apply(|| Array::from(vec![1_u8; 1 << 20]), ()).wait().unwrap();
    let own = Array::from(vec![2_u8; 1 << 20]);
    assert_eq!(pool.apply(sum, own.clone()).wait().unwrap(), 2 << 20);
    if is_fork() {
        is_forked("apply", pool.apply(sum, own.clone()).wait());
        is_forked("map", pool.map(|x: u64| x, 0..9).wait());
        is_forked("imap", pool.imap(|x: u64| x, 0..9).wait().next().unwrap());
        is_forked("new pool", Pool::new(1));
        is_forked("process", Process::spawn(|| (), ()).wait());
        is_forked("put", queue.put(5).wait());
        is_forked("get", filled.get().wait());
        is_forked("actor", adder.send(Add(1)).wait());
        is_forked("new ring", Ring::run(1, |_: RingNode| (), ()).wait());
        is_forked("stop", pool.stop().wait());
        is_forked("publish", awaited(topic.publish(7)));
        is_forked("subscribe", topic.subscribe(Slow::Wait).wait());
        is_forked("message", awaited(async { messages.next().await.expect("no end") }));
        assert!(awaited(async { Ok(messages.next().await.is_none()) }).unwrap());
        assert_eq!(blocking.wait().filter(|message| message.is_err()).count(), 1);
        pool.kill();
        ring.kill_rank(1);
        let more = Array::from(vec![3_u8; 1 << 20]);
        assert_eq!((sum(array.clone()), sum(more)), (1 << 20, 3 << 20));
        is_forked("earlier call", call.wait());
        is_forked("awaited call", awaited(awaited_call));
        is_forked("awaited output", awaited(output.get()));
        is_forked("awaited get", awaited(empty.get()));
        is_forked("awaited answer", awaited(adder.send(Add(0))));
        is_forked("awaited stop", awaited(adder.stop()));
        is_forked("awaited ring", awaited(ring));
        drop((pool, queue, filled, adder, array, own, output, empty, topic, messages, kept));
        std::process::exit(0);
    }
    assert_eq!(call.wait().unwrap(), worker);
    assert_eq!(pool.apply(std::process::id, ()).wait().unwrap(), worker, "it lives");
    ring.wait().unwrap();
    assert_eq!(adder.send(Add(1)).wait().unwrap(), 11);
    topic.publish(8).wait().unwrap();
    assert_eq!(kept.wait().next().unwrap().unwrap(), 8);
    assert_eq!((queue.len().wait().unwrap(), filled.get().wait().unwrap()), (0, 1));
    let values = pool.map(sum, [array, own]).wait().unwrap();
    assert_eq!(values, [1 << 20, 2 << 20]);
    println!("all is as before");
}

#[scenario("forks in a task")]
fn forks_in_a_task() {
    fiber::init();
    let pool = Pool::new(1).unwrap();
    let worker = pool.apply(std::process::id, ()).wait().unwrap();
    let nested = || {
        let inner = Pool::new(1).unwrap();
        let before = inner.apply(std::process::id, ()).wait().unwrap();
        if is_fork() {
            std::process::exit(0);
        }
        assert_eq!(inner.apply(std::process::id, ()).wait().unwrap(), before);
        std::process::id()
    };
    assert_eq!(pool.apply(nested, ()).wait().unwrap(), worker);
    println!("the worker lives");
}

/// A rank forks, and its fork uses and drops what is the rank's.
#[scenario("forks in a rank")]
fn forks_in_a_rank() {
    fiber::init();
    let meet = |mut node: RingNode| -> fiber::Result<i64> {
        node.barrier()?;
        if node.rank() == 0 && is_fork() {
            is_forked("send", node.send(1, "from the fork"));
            is_forked("meet", node.barrier());
            drop(node);
            std::process::exit(0);
        }
        let mut sum = [node.rank() as i64 + 1];
        node.all_reduce(&mut sum, Reduction::Sum)?;
        Ok(sum[0])
    };
    println!("sums {:?}", Ring::builder().size(2).try_run(meet, ()).wait());
}

#[scenario("ends its fork")]
fn ends_its_fork() {
    fiber::init();
    Pool::new(1).unwrap().apply(|| (), ()).wait().unwrap();
    std::io::stdout().flush().unwrap();
    // SAFETY: the fork only waits for its end.
    let fork = unsafe { libc::fork() };
    if fork == 0 {
        fiber_test_support::wait::hang();
    }
    let fork = rustix::process::Pid::from_raw(fork).expect("the system can fork");
    kill_process(fork, Signal::TERM).unwrap();
    let (_, status) = waitpid(Some(fork), WaitOptions::empty()).unwrap().unwrap();
    println!("a signal that ended the fork: {:?}", status.terminating_signal());
}

/// A fork of a worker drops its copies of what the worker has of other processes.
#[scenario("forks with handles of others")]
fn forks_with_handles_of_others() {
    fiber::init();
    let numbers = Queue::<u32>::new().unwrap();
    let task = |numbers: Queue<u32>| {
        let topic = Topic::<u32>::named("news").unwrap();
        let mut messages = topic.subscribe(Slow::Wait).wait().unwrap().wait();
        numbers.put(5).wait().unwrap();
        if is_fork() {
            drop(topic.publish(6));
            drop((messages, topic, numbers));
            std::process::exit(0);
        }
        topic.publish(7).wait().unwrap();
        (messages.next().unwrap().unwrap(), numbers.get().wait().unwrap())
    };
    let received = Pool::new(1).unwrap().max_deaths(1).apply(task, numbers).wait();
    println!("received {received:?}");
}

#[scenario("forks before it starts")]
fn forks_before_it_starts() {
    fiber::init();
    // Both go on, and each has children of its own.
    let _ = is_fork();
    println!("sum {}", Pool::new(1).unwrap().apply(|x: u64| x + 1, 4).wait().unwrap());
}

#[scenario("gives up root")]
fn gives_up_root() {
    fiber::init();
    let pool = Pool::builder().name("rooted").processes(1).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    // SAFETY: it changes numbers in the kernel.
    assert_eq!(unsafe { libc::setuid(60_000) }, 0);
    let died = pool.max_deaths(1).apply(|| -> u8 { std::process::abort() }, ()).wait().unwrap_err();
    println!("died: {died}");
    println!("then: {}", pool.apply(|| 1, ()).wait().unwrap_err());
    println!("process: {}", Process::spawn(|| 1, ()).wait().unwrap_err());
}
