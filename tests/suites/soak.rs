//! Objects that are made in a loop are freed: memory, descriptors and threads stay flat.
//!
//! Each test makes and drops many objects of a few types, in rounds. It passes when rounds add less
//! than a tenth of the memory that the objects would take if they were kept. Memory is the heap in
//! use; for other processes, the resident memory. `make soak` makes more.

use std::fs::{read_dir, read_to_string};
use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::entities::find_entities;
use fiber::supervisor::{ChildSpec, Restart};
use fiber::sync::{
    Barrier, Condition, Event, List, Lock, Map, Namespace, RwLock, Semaphore, Value,
};
use fiber::{
    AsyncManager, Entities, Error, Output, Pipe, Pool, Process, Queue, RemoteAddr, Ring, RingNode,
    Supervisor,
};
use fiber_test_support::{hang, soak};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// The heap of this process: the bytes in use. Resident memory is less precise, as it includes
/// freed memory.
mod heap {
    #![allow(unsafe_code)]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static IN_USE: AtomicUsize = AtomicUsize::new(0);

    pub(crate) fn in_use() -> usize {
        IN_USE.load(Relaxed)
    }

    /// The system's allocator, which counts bytes.
    pub(crate) struct Counting;

    // SAFETY: all calls go to the system's allocator, with the same arguments.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            IN_USE.fetch_add(layout.size(), Relaxed);
            // SAFETY: the caller fulfils the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            IN_USE.fetch_sub(layout.size(), Relaxed);
            // SAFETY: the caller fulfils the contract of `dealloc`; the block came from `alloc`.
            unsafe { System.dealloc(block, layout) }
        }
    }
}

/// Rounds in which memory may still grow to the peak of the work.
const ROUNDS: usize = 10;
const MOMENT: Duration = Duration::from_millis(10);
/// The time in which the objects of a round have to be freed: an object outlives its last handle
/// for a while.
const SETTLING: Duration = Duration::from_secs(15);

/// Usage that has not changed for this time has settled: the next round shows whether it grows.
const SETTLED: Duration = Duration::from_secs(3);

/// Returns the number of objects in a round.
fn count(usual: usize) -> usize {
    usual * soak()
}

/// The resources of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    memory: usize,
    descriptors: usize,
    threads: usize,
}

/// Returns the memory of a process, in bytes.
fn memory(pid: u32) -> usize {
    if pid == std::process::id() {
        return heap::in_use();
    }
    let status = read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

impl Usage {
    fn of(pid: u32) -> Usage {
        let entries = |of: &str| read_dir(format!("/proc/{pid}/{of}")).unwrap().count();
        Usage { memory: memory(pid), descriptors: entries("fd"), threads: entries("task") }
    }

    /// Returns the resources of this process when they are flat, or no longer change, or after the
    /// time limit.
    fn settled(since: Usage, objects: usize, size: usize) -> Usage {
        let begun = Instant::now();
        let (mut last, mut changed) = (Usage::of(std::process::id()), begun);
        while !last.is_flat(since, objects, size)
            && begun.elapsed() < SETTLING
            && changed.elapsed() < SETTLED
        {
            std::thread::sleep(MOMENT);
            let usage = Usage::of(std::process::id());
            if usage != last {
                (last, changed) = (usage, Instant::now());
            }
        }
        last
    }

    /// Returns whether `objects` of `size` bytes each can't have been kept since.
    fn is_flat(self, since: Usage, objects: usize, size: usize) -> bool {
        let few = 2 + objects / 10;
        self.memory < since.memory + objects * size / 10
            && self.descriptors <= since.descriptors + few
            && self.threads <= since.threads + few
    }
}

/// Calls `make` in rounds of `objects`, until three rounds have left nothing in any of the
/// processes. After one round alone, objects that another process keeps may fit into memory that it
/// freed before.
///
/// `size` is the least number of bytes that an object takes if it is kept.
#[track_caller]
fn flat(what: &str, objects: usize, size: usize, others: &[u32], mut make: impl FnMut()) {
    // Memory that is taken once would look like a leak, until the time limit of the round.
    (0..objects).for_each(|_| make());
    let here = Usage::of(std::process::id());
    let usages_with = |here: Usage| {
        [here].into_iter().chain(others.iter().map(|pid| Usage::of(*pid))).collect::<Vec<_>>()
    };
    let mut usages = vec![usages_with(here)];
    for _ in 0..ROUNDS {
        (0..objects).for_each(|_| make());
        let before = usages.last().map_or(here, |usages| usages[0]);
        usages.push(usages_with(Usage::settled(before, objects, size)));
        if let [.., before, _, _, after] = &usages[..]
            && after
                .iter()
                .zip(before)
                .all(|(after, before)| after.is_flat(*before, 3 * objects, size))
        {
            return;
        }
    }
    panic!("{what}: each round of {objects} leaves something behind: {usages:?}");
}

/// A process that receives handles and drops them.
struct Sink<T> {
    handles: Queue<T>,
    taken: Queue<()>,
    process: Process<()>,
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Sink<T> {
    fn new() -> Sink<T> {
        let (handles, taken) = (Queue::<T>::new().unwrap(), Queue::new().unwrap());
        let take = |handles: Queue<T>, taken: Queue<()>| {
            for handle in handles.stream().wait() {
                drop(handle.unwrap());
                taken.put(()).wait().unwrap();
            }
        };
        let process = Process::spawn(take, (handles.clone(), taken.clone()));
        process.started().wait().unwrap();
        Sink { handles, taken, process }
    }

    fn give(&self, handle: T) {
        self.handles.put(handle).wait().unwrap();
        self.taken.get().wait().unwrap();
    }

    fn end(self) {
        self.handles.close().wait().unwrap();
        self.process.wait().unwrap();
    }
}

/// Objects of one type: dropped here, sent through a queue of this process, and sent to another.
fn objects<T: Serialize + DeserializeOwned + Send + 'static>(what: &str, make: impl Fn() -> T) {
    let (many, some) = (count(2_000), count(500));
    flat(what, many, 800, &[], || drop(make()));
    let relay = Queue::new().unwrap();
    flat(what, many, 800, &[], || {
        relay.put(make()).wait().unwrap();
        drop(relay.get().wait().unwrap());
    });
    let sink = Sink::new();
    let other = sink.process.pid().unwrap();
    flat(what, some, 3_000, &[other], || sink.give(make()));
    sink.end();
}

macro_rules! objects {
    ($($test:ident: $make:expr;)+) => {$(
        #[test]
        fn $test() {
            objects(stringify!($test), || $make);
        }
    )+};
}

objects! {
    queues_are_freed: Queue::<u32>::new().unwrap();
    bounded_queues_are_freed: Queue::<u32>::bounded(1).unwrap();
    pipes_are_freed: Pipe::<u32, u32>::new().unwrap();
    locks_are_freed: Lock::new().unwrap();
    locks_for_readers_are_freed: RwLock::new().unwrap();
    semaphores_are_freed: Semaphore::new(1).unwrap();
    events_are_freed: Event::new().unwrap();
    barriers_are_freed: Barrier::new(2).unwrap();
    conditions_are_freed: Condition::new().unwrap();
    values_are_freed: Value::new(0).unwrap();
    lists_are_freed: List::<u32>::new().unwrap();
    maps_are_freed: Map::<u32, u32>::new().unwrap();
    namespaces_are_freed: Namespace::new().unwrap();
}

#[test]
fn the_content_of_objects_is_freed_with_them() {
    const SIZE: usize = 256 << 10;
    let content = ByteBuf::from(vec![7; SIZE]);
    let sink = Sink::new();
    let other = sink.process.pid().unwrap();
    flat("contents", count(50), 4 * SIZE, &[other], || {
        let (queue, value, list, map) = (
            Queue::new().unwrap(),
            Value::new(content.clone()).unwrap(),
            List::new().unwrap(),
            Map::new().unwrap(),
        );
        queue.put(content.clone()).wait().unwrap();
        queue.close().wait().unwrap();
        list.push(content.clone()).wait().unwrap();
        map.insert(1, content.clone()).wait().unwrap();
        sink.give((queue, value, list, map));
    });
    sink.end();
}

#[test]
fn the_elements_of_a_queue_whose_handle_was_sent_are_freed_with_its_last_handle() {
    const SIZE: usize = 200 << 20;
    let pool = Pool::new(1).unwrap();
    let worker = pool.apply(|()| std::process::id(), ()).wait().unwrap();
    flat("a queue of 200 MiB", 1, SIZE, &[worker], || {
        let queue = Queue::new().unwrap();
        (0..SIZE >> 20).for_each(|_| queue.put(ByteBuf::from(vec![7; 1 << 20])).wait().unwrap());
        let length = |queue: Queue<ByteBuf>| queue.len().wait().unwrap();
        assert_eq!(pool.apply(length, queue.clone()).wait().unwrap(), SIZE >> 20);
        queue.close().wait().unwrap();
    });
}

#[test]
fn handles_in_arguments_and_results_of_tasks_free_their_objects() {
    let pool = Pool::new(1).unwrap();
    let worker = pool.apply(|()| std::process::id(), ()).wait().unwrap();
    flat("arguments", count(500), 3_000, &[worker], || {
        pool.apply(|_: Queue<u32>| (), Queue::new().unwrap()).wait().unwrap();
    });
    flat("results", count(500), 3_000, &[worker], || {
        drop(pool.apply(|()| Queue::<u32>::new().unwrap(), ()).wait().unwrap());
    });
    flat("items", count(50), 30_000, &[worker], || {
        let items: Vec<_> = (0..10).map(|_| Queue::<u32>::new().unwrap()).collect();
        pool.map(|queue: Queue<u32>| queue, items).wait().unwrap();
    });
}

#[test]
fn outputs_in_other_processes_are_freed() {
    let pool = Pool::new(1).unwrap();
    let worker = pool.apply(|()| std::process::id(), ()).wait().unwrap();
    let length = |output: Output<ByteBuf>| output.get().wait().unwrap().len();
    let give = |output: Output<ByteBuf>| output;
    flat("outputs", count(500), 4_000, &[worker], || {
        let output = pool.apply(|len: usize| ByteBuf::from(vec![7; len]), 4_000).output();
        assert_eq!(pool.apply(length, output.clone()).wait().unwrap(), 4_000);
        let back = pool.apply(give, output).wait().unwrap();
        assert_eq!(back.get().wait().unwrap().len(), 4_000);
    });
}

/// An entity that answers.
struct Door;

impl Actor for Door {
    type Context = Context<Self>;
}

#[fiber::message]
struct Knock;

#[fiber::handlers]
impl Door {
    fn knock(&mut self, _: Knock) {}
}

#[test]
fn entities_that_are_found_again_and_again_leave_nothing() {
    let ready = Queue::new().unwrap();
    let own = |ready: Queue<()>| {
        let doors = Entities::builder("doors").processes(1).start(|_: String, ()| Door, ());
        let _doors = doors.wait().unwrap();
        ready.put(()).wait().unwrap();
        hang();
    };
    let owner = Process::spawn(own, ready.clone());
    ready.get().wait().unwrap();
    flat("addresses of entities", count(500), 800, &[], || {
        let doors = find_entities::<Door>("doors").wait().unwrap();
        doors.of(1).send(Knock).wait().unwrap();
    });
    owner.kill();
}

#[test]
fn broadcasts_are_freed() {
    const SIZE: usize = 64 << 10;
    let pool = Pool::new(1).unwrap();
    let worker = pool.apply(|()| std::process::id(), ()).wait().unwrap();
    flat("broadcasts", count(500), SIZE, &[worker], || {
        let value = pool.broadcast(ByteBuf::from(vec![7; SIZE])).unwrap();
        let length = |value: fiber::Broadcast<ByteBuf>| value.get().unwrap().len();
        assert_eq!(pool.apply(length, value.clone()).wait().unwrap(), SIZE);
    });
}

#[test]
fn cancelled_and_dropped_calls_are_freed() {
    let pool = Pool::new(1).unwrap();
    let worker = pool.apply(|()| std::process::id(), ()).wait().unwrap();
    flat("calls", count(1_000), 4_000, &[worker], || {
        drop(pool.apply(|_: ByteBuf| (), ByteBuf::from(vec![7; 4_000])));
        drop(pool.map(|_: ByteBuf| (), vec![ByteBuf::from(vec![7; 4_000])]));
    });
    let (empty, full) = (Queue::<u32>::new().unwrap(), Queue::bounded(1).unwrap());
    full.put(1).wait().unwrap();
    let (lock, event) = (Lock::new().unwrap(), Event::new().unwrap());
    let held = lock.lock().wait().unwrap();
    let all = (empty, full, lock, event);
    let (times, size) = (count(200).div_ceil(WAITS), WAITS * 10_000);
    flat("requests of this process", times, size, &[], || withdraw(all.clone()));
    flat("requests of another process", times, size, &[worker], || {
        pool.apply(withdraw, all.clone()).wait().unwrap()
    });
    drop(held);
}

/// The number of requests of each kind that are withdrawn at a time.
const WAITS: usize = 20;

fn withdraw((empty, full, lock, event): (Queue<u32>, Queue<u32>, Lock, Event)) {
    let requests = (0..WAITS).map(|_| {
        (
            empty.get().timeout(MOMENT),
            empty.get_acknowledged().timeout(MOMENT),
            full.put(2).timeout(MOMENT),
            lock.lock().timeout(MOMENT),
            event.wait_set().timeout(MOMENT),
        )
    });
    for (get, acknowledged, put, locked, set) in requests.collect::<Vec<_>>() {
        get.wait().unwrap_err();
        acknowledged.wait().unwrap_err();
        put.wait().unwrap_err();
        locked.wait().unwrap_err();
        set.wait().unwrap_err();
        drop((empty.stream(), empty.get(), lock.lock(), full.put(3), event.wait_set()));
    }
}

struct Idle;

impl Actor for Idle {
    type Context = Context<Idle>;
}

#[fiber::message]
struct Stop;

#[fiber::message]
struct WaitForRelease;

static RELEASE: tokio::sync::Notify = tokio::sync::Notify::const_new();

impl Handler<WaitForRelease> for Idle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: WaitForRelease, _: &mut Context<Idle>) -> ResponseFuture<()> {
        Box::pin(RELEASE.notified())
    }
}

#[fiber::message]
struct Release;

#[fiber::handlers]
impl Idle {
    fn stop(&mut self, _: Stop, context: &mut Context<Idle>) {
        context.stop();
    }

    fn release(&mut self, _: Release) {
        RELEASE.notify_waiters();
    }
}

#[test]
fn exported_addresses_are_freed_when_their_actors_have_ended() {
    System::new().block_on(async {
        let (objects, size) = (count(2_000), 1_000);
        let mut before = Usage::of(std::process::id());
        for round in 0.. {
            for _ in 0..objects {
                let addr = RemoteAddr::export(Idle.start()).unwrap();
                addr.send(Stop).await.unwrap();
            }
            let after = Usage::settled(before, objects, size);
            if after.is_flat(before, objects, size) {
                break;
            }
            assert!(round < ROUNDS, "exported addresses: {before:?}, then {after:?}");
            before = after;
        }
    });
}

#[test]
fn managers_and_calls_of_their_actors_are_freed() {
    let manager = AsyncManager::start(|()| Idle, ()).wait().unwrap();
    let other = manager.pid().unwrap();
    let hasty = manager.addr().timeout(Duration::from_millis(2));
    flat("timed-out calls", count(500).div_ceil(WAITS), WAITS * 2_000, &[other], || {
        let calls: Vec<_> = (0..WAITS).map(|_| hasty.send(WaitForRelease)).collect();
        for call in calls {
            let error = call.wait().unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        }
        manager.send(Release).wait().unwrap();
    });
    flat("managers that are never started", count(2_000), 1_000, &[], || {
        drop(AsyncManager::builder().child(|()| Idle, ()).unwrap());
    });
    flat("managers", count(12), 10_000, &[], || {
        let manager = AsyncManager::start(|()| Idle, ()).wait().unwrap();
        manager.send(Stop).wait().unwrap();
        manager.join().wait().unwrap();
    });
}

#[test]
fn pools_are_freed() {
    flat("pools", count(12), 10_000, &[], || {
        let pool = Pool::new(1).unwrap();
        pool.apply(|x: u32| x, 1).wait().unwrap();
        pool.stop().wait().unwrap();
    });
    flat("pools that scale", count(12), 10_000, &[], || {
        let pool = Pool::builder().scale_between(1..=2).build().unwrap();
        pool.apply(|x: u32| x, 1).wait().unwrap();
        pool.kill();
        pool.join().wait().unwrap();
    });
    flat("unused pools", count(2_000), 1_500, &[], || drop(Pool::new(1).unwrap()));
}

#[test]
fn a_stopped_pool_keeps_nothing_for_a_while() {
    const POOLS: usize = 20;
    // A worker's output has a thread in tests, until its pool's actor ends.
    let threads = || Usage::of(std::process::id()).threads;
    let before = threads();
    for _ in 0..POOLS {
        let pool = Pool::new(1).unwrap();
        pool.apply(|x: u32| x, 1).wait().unwrap();
        pool.stop().wait().unwrap();
    }
    assert!(threads() < before + POOLS / 2, "{before} threads, then {}", threads());
}

#[test]
fn processes_rings_and_supervisors_are_freed() {
    flat("processes", count(20), 10_000, &[], || Process::spawn(|()| (), ()).wait().unwrap());
    flat("rings", count(6), 10_000, &[], || {
        let rank = |node: RingNode| node.rank();
        assert_eq!(Ring::builder().size(2).run(rank, ()).wait().unwrap(), [0, 1]);
    });
    flat("supervisors", count(1_000), 2_000, &[], || {
        let child = ChildSpec::actor("idle", || Idle).restart(Restart::Temporary);
        let app = Supervisor::builder("app").child(child).start().wait().unwrap();
        app.stop().wait().unwrap();
    });
}
