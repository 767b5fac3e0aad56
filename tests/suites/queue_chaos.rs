//! Consumers, lock holders, owners of queues and holders of pipe ends are killed at random. No
//! element is lost, and every operation ends. `make soak` does more of it.

use std::collections::HashMap;
use std::time::Duration;

use fiber::sync::{List, Lock};
use fiber::{Error, Pipe, Process, Queue};
use fiber_test_support::soak;
use fiber_test_support::wait::{LONG, wait_until};
use rand::{Rng, SeedableRng};

/// Kills each child after a random time, and starts another, until `done` returns `true`.
macro_rules! torment {
    ($count:expr, $start:expr, $done:expr) => {{
        let mut random = rand::rngs::SmallRng::seed_from_u64(5);
        let mut children: Vec<Process<()>> = (0..$count).map(|_| $start).collect();
        while !$done {
            let victim = random.random_range(0..children.len());
            let life = Duration::from_millis(random.random_range(0..30));
            // The random lifetime is the subject of this test.
            let _ = children[victim].join().timeout(life).wait();
            children[victim].kill();
            children[victim] = $start;
        }
        children
    }};
}

#[test]
fn no_element_is_lost_that_has_to_be_acknowledged() {
    let elements = 1000 * soak() as u32;
    let (queue, done) = (Queue::new().unwrap(), List::<u32>::new().unwrap());
    let work = |queue: Queue<u32>, done: List<u32>| {
        while let Ok(element) = queue.get_acknowledged().wait() {
            done.push(*element).wait().unwrap();
            element.acknowledge().wait().unwrap();
        }
    };
    (0..elements).for_each(|n| queue.put(n).wait().unwrap());
    let start = || Process::spawn(work, (queue.clone(), done.clone()));
    let mut seen = 0;
    let mut finished = || {
        let mut is_finished = false;
        // On a busy machine, children that are killed at once would never begin.
        wait_until("a child has done something since the last kill", || {
            let count = done.len().wait().unwrap() as u32;
            is_finished = count >= elements && queue.join().timeout(Duration::ZERO).wait().is_ok();
            is_finished || std::mem::replace(&mut seen, count) < count
        });
        is_finished
    };
    let children = torment!(4, start(), finished());
    queue.close().wait().unwrap();
    children.into_iter().for_each(|child| child.wait().unwrap());
    let mut times = HashMap::new();
    done.to_vec().wait().unwrap().into_iter().for_each(|n| *times.entry(n).or_insert(0) += 1);
    assert_eq!(times.len() as u32, elements, "all elements were delivered");
}

#[test]
fn a_living_consumer_gets_no_element_twice_and_none_is_left() {
    let elements = 60_000 * soak() as u32;
    let queue = Queue::new().unwrap();
    let work = |queue: Queue<u32>| while queue.get().wait().is_ok() {};
    let start = || Process::spawn(work, queue.clone());
    let mut put = 0;
    let mut here = Vec::new();
    let children = torment!(3, start(), {
        (put..put + 5000).for_each(|n| queue.put(n).wait().unwrap());
        put += 5000;
        here.extend(
            (0..200).filter_map(|_| queue.get().timeout(Duration::from_millis(5)).wait().ok()),
        );
        put >= elements
    });
    queue.close().wait().unwrap();
    here.extend(queue.stream().wait().map(Result::unwrap));
    let count = here.len();
    here.sort_unstable();
    here.dedup();
    assert_eq!(here.len(), count, "this process lives");
    children.into_iter().for_each(|child| child.wait().unwrap());
}

#[test]
fn a_lock_survives_all_its_holders() {
    let (lock, holders) = (Lock::new().unwrap(), Queue::new().unwrap());
    let hold = |lock: Lock, holders: Queue<u32>| loop {
        let held = lock.lock().wait().unwrap();
        holders.put(std::process::id()).wait().unwrap();
        // Most are killed here.
        std::thread::sleep(Duration::from_millis(2));
        drop(held);
    };
    let start = || Process::spawn(hold, (lock.clone(), holders.clone()));
    let mut children: Vec<_> = (0..3).map(|_| start()).collect();
    for _ in 0..20 {
        let holder = holders.get().wait().unwrap();
        for child in &mut children {
            if child.pid() == Some(holder) {
                std::mem::replace(child, start()).kill();
            }
        }
    }
    children.iter().for_each(Process::kill);
    assert!(lock.lock().timeout(LONG).wait().is_ok());
    // The next holder learns that the last one died with the lock.
    let holder = start();
    holder.started().wait().unwrap();
    while holders.get().wait().unwrap() != holder.pid().unwrap() {}
    let park = |lock: Lock, holders: Queue<u32>| {
        let _held = lock.lock().wait().unwrap();
        holders.put(0).wait().unwrap();
        fiber_test_support::hang()
    };
    holder.kill();
    let last = Process::spawn(park, (lock.clone(), holders.clone()));
    while holders.get().wait().unwrap() != 0 {}
    last.kill();
    assert!(lock.lock().timeout(LONG).wait().unwrap().was_abandoned());
}

#[test]
fn every_call_ends_when_queue_owners_are_killed() {
    let owners = Queue::new().unwrap();
    let own = |owners: Queue<Queue<u32>>| {
        let queue = Queue::new().unwrap();
        owners.put(queue.clone()).wait().unwrap();
        while queue.get().wait().is_ok() {}
    };
    let start = || Process::spawn(own, owners.clone());
    let mut rounds = 0;
    let children = torment!(3, start(), {
        let queue = owners.get().wait().unwrap();
        rounds += 1;
        let feeds = std::thread::spawn(move || {
            (0..100_000).try_for_each(|n| queue.put(n).wait()).and_then(|()| queue.flush().wait())
        });
        // It may succeed or fail, but it ends.
        if rounds % 4 == 0 {
            let _ = feeds.join().unwrap();
        }
        rounds > 15 * soak()
    });
    children.into_iter().for_each(|child| child.kill());
}

#[test]
fn both_directions_of_a_pipe_end_when_the_process_of_the_other_end_is_killed() {
    let echo = |there: Pipe<u32>| {
        for n in there.stream().wait() {
            there.send(n.unwrap()).wait().unwrap();
        }
    };
    let mut random = rand::rngs::SmallRng::seed_from_u64(5);
    for _ in 0..30 {
        let (here, there) = Pipe::<u32>::new().unwrap();
        let child = Process::spawn(echo, there);
        here.send(0).wait().unwrap();
        assert_eq!(here.recv().wait().unwrap(), 0);
        let feeds = here.clone();
        let feeds =
            std::thread::spawn(move || (1..).try_for_each(|n| feeds.send(n).wait()).unwrap_err());
        (1..random.random_range(2..2000)).for_each(|n| assert_eq!(here.recv().wait().unwrap(), n));
        child.kill();
        assert!(matches!(feeds.join().unwrap(), Error::Closed { .. }));
        let last = here.stream().wait().last().map(Result::unwrap);
        assert!(matches!(here.recv().wait().unwrap_err(), Error::Closed { .. }), "after {last:?}");
    }
}
