//! Programs whose handles are dropped when a thread ends, after thread-local values of others.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::sync::OnceLock;

use actix::prelude::*;
use fiber::supervisor::ChildSpec;
use fiber::sync::{Barrier, Event, Lock, Semaphore, Value};
use fiber::topic::Slow;
use fiber::{
    Array, AsyncManager, Pipe, Pool, Process, Queue, Ring, RingNode, Sender, Supervisor, Topic,
};
use fiber_test_support::scenario;

thread_local!(static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) });

struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

#[fiber::message]
struct Wait;

#[fiber::handlers]
impl Idle {
    fn wait(&mut self, _: Wait) {
        park();
    }
}

/// What a thread keeps until it ends, with its name.
type Kind = (&'static str, fn() -> Box<dyn Any>);

macro_rules! kinds {
    ($($name:literal $make:expr;)*) => {
        [$(($name, (|| -> Box<dyn Any> { Box::new($make) }) as fn() -> Box<dyn Any>)),*]
    };
}

fn pool() -> Pool {
    let pool = Pool::new(1).unwrap();
    pool.wait_until_ready().wait().unwrap();
    pool
}

fn park() {
    fiber_test_support::hang()
}

fn sleep(_: u64) {
    park();
}

fn kinds() -> impl IntoIterator<Item = Kind> {
    kinds! {
        "pool" pool();
        "unused pool" Pool::new(1).unwrap();
        "apply" { let pool = pool(); (pool.apply(sleep, 1), pool) };
        "map" { let pool = pool(); let map = pool.map(sleep, 0..9); (map, pool) };
        "imap" { let pool = pool(); let imap = pool.imap(|x: u64| x, 0..).wait(); (imap, pool) };
        "reply" { let pool = pool(); (pool.scale(2), pool) };
        "output" { let pool = pool(); (pool.apply(sleep, 1).output(), pool.put(5).unwrap(), pool) };
        "broadcast" { let pool = pool(); (pool.broadcast(vec![5; 9]).unwrap(), pool) };
        "stream" {
            let pool = pool();
            let numbers = |out: Sender<u64>| (0..).try_for_each(|x| out.send(x).wait());
            (pool.stream(numbers, ()), pool)
        };
        "process" Process::spawn(park, ());
        "ring" Ring::run(2, |_: RingNode| park(), ());
        "actor" AsyncManager::start(|| Idle, ()).wait().unwrap();
        "call" {
            let idle = AsyncManager::start(|| Idle, ()).wait().unwrap();
            (idle.send(Wait), idle.addr(), idle)
        };
        "supervisor" {
            let park = ChildSpec::process("park", park, ()).unwrap();
            Supervisor::builder("kept").child(park).start().wait().unwrap()
        };
        "queue" { let queue = Queue::<u64>::new().unwrap(); (queue.get(), queue.put(1), queue) };
        "delivery" {
            let queue = Queue::new().unwrap();
            queue.put(1).wait().unwrap();
            (queue.get_acknowledged().wait().unwrap(), queue)
        };
        "pipe" Pipe::<u64, u64>::new().unwrap();
        "sender" Pipe::<u64>::one_way().unwrap();
        "lock" {
            let lock = Lock::new().unwrap();
            (lock.lock().wait().unwrap(), lock.lock(), lock)
        };
        "permit" {
            let permits = Semaphore::new(1).unwrap();
            (permits.acquire().wait().unwrap(), permits.acquire(), permits)
        };
        "event" { let event = Event::new().unwrap(); (event.wait_set(), event) };
        "barrier" { let barrier = Barrier::new(2).unwrap(); (barrier.wait_all(), barrier) };
        "value" Value::new(5).unwrap();
        "topic" {
            let topic = Topic::<u64>::new().unwrap();
            (topic.subscribe(Slow::Wait).wait().unwrap(), topic.publish(5), topic)
        };
        "array" {
            let pool = pool();
            let array = pool.apply(|| Array::from(vec![1_u8; 1 << 20]), ()).wait().unwrap();
            (pool.put(array.clone()).unwrap(), array)
        };
    }
}

#[scenario("handles in threads that end")]
fn handles_in_threads_that_end() {
    fiber::init();
    for (name, make) in kinds() {
        // Everything that a handle uses has its thread-local values after this one.
        let keep = move || KEPT.with_borrow_mut(|kept| kept.push(make()));
        std::thread::spawn(keep).join().unwrap();
        println!("ended with {name}");
    }
}

#[scenario("handles in the main thread that ends")]
fn handles_in_the_main_thread_that_ends() {
    fiber::init();
    KEPT.with_borrow_mut(|kept| kept.extend(kinds().into_iter().map(|(_, make)| make())));
    println!("keeps all");
}

/// A pool is called after the children have ended, on a thread without its thread-local values.
#[scenario("calls when the program has ended")]
fn calls_when_the_program_has_ended() {
    static LATE: OnceLock<Pool> = OnceLock::new();
    extern "C" fn late() {
        let pool = LATE.get().expect("it is set before the end");
        println!("apply: {}", pool.apply(|x: u64| x, 5).wait().unwrap_err());
        println!("map: {}", pool.map(|x: u64| x, 0..5).wait().unwrap_err());
        println!("imap: {}", pool.imap(|x: u64| x, 0..5).wait().next().unwrap().unwrap_err());
    }
    // SAFETY: the function lives as long as the program.
    assert_eq!(unsafe { libc::atexit(late) }, 0);
    // Exit hooks run in the reverse order: this one comes after those of fiber.
    fiber::init();
    let pool = pool();
    assert_eq!(pool.apply(|x: u64| x, 5).wait().unwrap(), 5);
    LATE.set(pool).unwrap();
}

/// The threads have not used fiber before they end with handles that others have made.
#[scenario("handles from other threads")]
fn handles_from_other_threads() {
    fiber::init();
    let (pool, queue) = (pool(), Queue::<u64>::new().unwrap());
    let pools = (pool.map(sleep, 0..9), pool);
    std::thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| kept.push(Box::new(pools)));
        drop(tokio::task::LocalSet::new().enter());
    })
    .join()
    .unwrap();
    /// Uses a queue when it is dropped.
    struct PutsWhenDropped(Queue<u64>);
    impl Drop for PutsWhenDropped {
        fn drop(&mut self) {
            self.0.put(7).wait().unwrap();
        }
    }
    let puts = PutsWhenDropped(queue.clone());
    std::thread::spawn(move || KEPT.with_borrow_mut(|kept| kept.push(Box::new(puts))));
    println!("put {}", queue.get().wait().unwrap());
}
