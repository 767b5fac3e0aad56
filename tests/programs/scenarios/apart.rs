//! A program with two hosts that can't reach each other's Unix sockets, as on two machines: the
//! second one runs in a pid namespace of its own.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use actix::prelude::{Actor, Context};
use fiber::sync::{Barrier, Lock, Value};
use fiber::{Array, AsyncManager, Pool, Queue, RemoteAddr, Ring, RingNode};
use fiber_test_support::scenario;
use fiber_test_support::tasks::all_at_once;
use fiber_transport::traffic;

/// The program and the arguments that run another in a pid namespace of its own.
pub(crate) const IN_NEW_NAMESPACE: [&str; 6] =
    ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child"];

/// Bytes of a value that a rank sends.
const BYTES: usize = 4 << 20;
/// Workers, two of them in each host.
const WORKERS: usize = 4;

/// Starts the second host of the program again, in another namespace.
fn move_apart() {
    let Ok(value) = std::env::var("FIBER_PARENT") else { return };
    let fields: Vec<&str> = value.splitn(6, ',').collect();
    let [id, parent, _, listener, "host", address] = fields[..] else { return };
    if std::env::var("APART").is_ok() || File::create_new("first-host").is_ok() {
        return;
    }
    // The parent's pid has no meaning there.
    let value = [id, parent, "elsewhere", listener, "host", address].join(",");
    let [program, arguments @ ..] = IN_NEW_NAMESPACE;
    let mut command = Command::new(program);
    let own = std::env::current_exe().expect("this binary is somewhere");
    command.args(arguments).arg(own).args(std::env::args_os().skip(1));
    let again = command.env("FIBER_PARENT", value).env("APART", "1").exec();
    panic!("the program can't be started again: {again}");
}

/// The pid namespace of this process.
fn namespace() -> i64 {
    fs::metadata("/proc/self/ns/pid").expect("the kernel has namespaces").ino().cast_signed()
}

#[scenario("hosts apart")]
fn hosts_apart() {
    move_apart();
    fiber::init();
    check_ring();
    println!("a ring works");
    let pool = Pool::builder().processes(WORKERS).processes_per_job(2).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    check_queue(&pool);
    println!("a queue works");
    check_actor(&pool);
    println!("an actor works");
    check_sync(&pool);
    println!("shared objects work");
}

fn check_ring() {
    let ring = Ring::builder().size(4).processes_per_job(2);
    let sent: Vec<_> = ring.try_run(exchange, ()).wait().unwrap().into_iter().flatten().collect();
    let count = |near| sent.iter().filter(|(is_near, _)| *is_near == near).count();
    assert_eq!((count(true), count(false)), (4, 8), "two ranks in each of two hosts");
    for (is_near, over_a_link) in sent {
        assert_eq!(is_near, !over_a_link, "near ranks share memory, others don't");
    }
}

/// Sends to each other rank. Returns whether that rank is near, and whether the bytes went over a
/// link.
fn exchange(mut node: RingNode) -> fiber::Result<Vec<(bool, bool)>> {
    let (rank, size) = (node.rank(), node.size());
    let namespaces = node.all_gather(&[namespace()])?;
    let mut sent = Vec::new();
    for distance in 1..size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        let before = traffic().0;
        node.send(to, &vec![rank as u8; BYTES])?;
        assert!(node.recv::<Vec<u8>>(from)? == vec![from as u8; BYTES]);
        // All have received: what links had to send, they have.
        node.barrier()?;
        let over_a_link = traffic().0 - before > BYTES as u64 / 2;
        sent.push((namespaces[to] == namespaces[rank], over_a_link));
    }
    let mut sums = vec![rank as i64; 100_000];
    node.all_reduce(&mut sums, fiber::Reduction::Sum)?;
    assert!(sums.iter().all(|sum| *sum == 6));
    Ok(sent)
}

/// Returns arguments for a task in each worker.
fn for_all_workers<T: Clone>(argument: T) -> Vec<(T, Barrier)> {
    all_at_once(WORKERS).into_iter().map(|all| (argument.clone(), all)).collect()
}

/// A worker's queue has arrays for all workers: those beside it map them.
fn check_queue(pool: &Pool) {
    let make = || -> fiber::Result<(Queue<Array<u64>>, i64)> {
        let queue = Queue::new()?;
        for _ in 0..500 {
            queue.put(Array::build(10_000, |numbers: &mut [u64]| numbers.fill(7))).wait()?;
        }
        Ok((queue, namespace()))
    };
    let (queue, owner) = pool.try_apply(make, ()).wait().unwrap();
    let read = |queue: Queue<Array<u64>>, all: Barrier| {
        let array = queue.get().wait().unwrap();
        assert!(array.iter().all(|number| *number == 7));
        all.wait_all().wait().unwrap();
        (namespace(), array.is_shared())
    };
    let mut namespaces = HashSet::new();
    for (namespace, is_shared) in pool.chunk(1).map(read, for_all_workers(queue)).wait().unwrap() {
        assert_eq!(is_shared, namespace == owner);
        namespaces.insert(namespace);
    }
    assert_eq!(namespaces.len(), 2);
}

#[derive(Default)]
struct Counter(u64);

impl Actor for Counter {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Count;

#[fiber::handlers]
impl Counter {
    fn count(&mut self, _: Count) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Workers of both hosts call an actor that one of them has started.
fn check_actor(pool: &Pool) {
    let start = || -> fiber::Result<RemoteAddr<Counter>> {
        let manager = AsyncManager::start(|()| Counter::default(), ()).wait()?;
        let addr = manager.addr();
        // It lives as long as the worker.
        std::mem::forget(manager);
        Ok(addr)
    };
    let addr = pool.try_apply(start, ()).wait().unwrap();
    let count = |addr: RemoteAddr<Counter>, all: Barrier| {
        all.wait_all().wait().unwrap();
        addr.send(Count).wait().unwrap()
    };
    let counts = pool.chunk(1).map(count, for_all_workers(addr)).wait().unwrap();
    assert_eq!(counts.into_iter().collect::<HashSet<_>>().len(), WORKERS);
}

/// Workers of both hosts change a value of one of them, under its lock.
fn check_sync(pool: &Pool) {
    let make = || -> fiber::Result<(Lock, Value<u64>)> { Ok((Lock::new()?, Value::new(0)?)) };
    let shared = pool.try_apply(make, ()).wait().unwrap();
    let add = |(lock, value): (Lock, Value<u64>)| {
        let guard = lock.lock().wait().unwrap();
        let old = value.get().wait().unwrap();
        value.set(old + 1).wait().unwrap();
        drop(guard);
    };
    pool.chunk(1).map(add, vec![shared.clone(); 100]).wait().unwrap();
    assert_eq!(shared.1.get().wait().unwrap(), 100);
}
