//! Arrays cross the wire to a host once, and its processes share the memory.

use std::collections::BTreeMap;

use fiber::sync::Barrier;
use fiber::{Array, Broadcast, Pool, Process};
use fiber_test_support::tasks::all_at_once;
use fiber_test_support::wait::wait_until;
use fiber_transport::traffic;

use super::{kill, pool};

const WORKERS: usize = 8;
/// Elements of 20 MB.
const LENGTH: usize = 20_000_000 / size_of::<u64>();

/// The sum of the value in each worker, and whether the worker maps it.
type Seen = BTreeMap<u32, (u64, bool)>;

fn sum(value: &Array<u64>) -> u64 {
    value.iter().sum()
}

/// Returns whether hosts are far: processes share no memory with them.
pub(crate) fn over_nng() -> bool {
    std::env::var("FIBER_LINK").is_ok_and(|link| link == "nng")
}

/// Reads the value in every worker.
fn read_everywhere(pool: &Pool, value: &Broadcast<Array<u64>>) -> Seen {
    let read = |value: Broadcast<Array<u64>>, all: Barrier| {
        let value = value.get().unwrap();
        all.wait_all().wait().unwrap();
        (std::process::id(), (sum(&value), value.is_shared()))
    };
    let arguments: Vec<_> =
        all_at_once(WORKERS).into_iter().map(|all| (value.clone(), all)).collect();
    pool.chunk(1).map(read, arguments).wait().unwrap().into_iter().collect()
}

/// The bytes of values that the only host has in shared memory, at its last heartbeat.
fn kept_by_host() -> Option<u64> {
    let processes = fiber::stats().unwrap().report.processes;
    let host = processes.iter().find(|process| process.role == fiber::stats::ProcessRole::Host)?;
    Some(host.usage.as_ref()?.shared)
}

/// Runs in a process of its own, because the counted bytes are those of all pools.
fn broadcast_to_a_host() {
    let pool = pool(WORKERS, WORKERS);
    let array = Array::build(LENGTH, |numbers: &mut [u64]| {
        numbers.iter_mut().zip(0..).for_each(|(number, value)| *number = value);
    });
    let expected = (sum(&array), true);
    let before = traffic().0;
    let value = pool.broadcast(array).unwrap();
    let seen = read_everywhere(&pool, &value);
    assert!(seen.values().all(|seen| *seen == expected), "{seen:?}");

    kill(*seen.keys().next().unwrap());
    pool.wait_until_ready().wait().unwrap();
    let again = read_everywhere(&pool, &value);
    assert!(again.keys().any(|worker| !seen.contains_key(worker)), "{seen:?} {again:?}");
    assert!(again.values().all(|seen| *seen == expected), "{again:?}");

    let sent = traffic().0 - before;
    let size = (LENGTH * size_of::<u64>()) as u64;
    let expected = if over_nng() { size..size + size / 10 } else { 0..size / 10 };
    assert!(expected.contains(&sent), "{sent} bytes were sent");

    wait_until("what the host keeps", || {
        kept_by_host() == Some(if over_nng() { size.next_multiple_of(4096) } else { 0 })
    });
    drop(value);
    wait_until("the end of the arrays", || {
        kept_by_host() == Some(0) && fiber::value_memory().shared == 0
    });
}

#[test]
fn a_broadcast_value_crosses_the_wire_once() {
    Process::spawn(broadcast_to_a_host, ()).wait().unwrap();
}

#[test]
fn a_worker_maps_an_array_that_came_to_its_host() {
    let pool = pool(2, 2);
    let array = Array::build(100_000, |numbers: &mut [u64]| numbers.fill(1));
    let read = |array: Array<u64>| (sum(&array), array.is_shared());
    assert_eq!(pool.map(read, vec![array; 10]).wait().unwrap(), [(100_000, true); 10]);
    drop(pool);
    wait_until("the end of the arrays", || fiber::value_memory().shared == 0);
}

/// Runs in a process of its own, because the counted bytes are those of all pools.
fn arrays_of_tasks() {
    let size = (LENGTH * size_of::<u64>()) as u64;
    let check = |(sent, received): (u64, u64), times: (u64, u64)| {
        let is_right = |bytes: u64, times: u64| {
            let times = if over_nng() { times } else { 0 };
            (size * times..size * times + size / 4).contains(&bytes)
        };
        assert!(is_right(sent, times.0) && is_right(received, times.1), "{sent} {received}");
    };
    let counted = |work: &dyn Fn()| {
        let before = traffic();
        work();
        (traffic().0 - before.0, traffic().1 - before.1)
    };
    let kept = |arrays: u64| {
        let bytes = if over_nng() { arrays * size.next_multiple_of(4096) } else { 0 };
        wait_until("what the host keeps", || kept_by_host() == Some(bytes));
    };
    let pool = pool(2, 2);
    let fill = |value: u64| Array::build(LENGTH, |numbers: &mut [u64]| numbers.fill(value));
    let read = |array: Array<u64>, index: usize| array[index];

    // An array of many tasks.
    let array = fill(7);
    let read_all = |array: &Array<u64>| {
        let items: Vec<_> = (0..20).map(|index| (array.clone(), index)).collect();
        pool.map(read, items).wait().unwrap()
    };
    check(counted(&|| assert_eq!(read_all(&array), [7; 20])), (1, 0));
    kept(1);
    drop(array);
    kept(0);

    // A value of tasks, and the tasks that take it, which are in either worker.
    let output = pool.apply(fill, 5).output();
    let worker = std::process::id;
    check(counted(&|| wait_until("the output", || output.is_ready())), (0, 0));
    let read_output = || {
        let items: Vec<_> = (0..20).map(|index| (output.clone(), index)).collect();
        assert_eq!(pool.map(read, items).wait().unwrap(), [5; 20]);
    };
    check(counted(&read_output), (0, 0));
    // It outlives the worker that made it.
    for _ in 0..4 {
        kill(pool.apply(worker, ()).wait().unwrap());
        pool.wait_until_ready().wait().unwrap();
    }
    check(counted(&read_output), (0, 0));
    drop(output);
    kept(0);
    wait_until("the end of the arrays", || fiber::value_memory().shared == 0);
}

#[test]
fn arrays_of_tasks_cross_the_wire_once() {
    Process::spawn(arrays_of_tasks, ()).wait().unwrap();
}

/// Runs in a process of its own, because the counted bytes are those of all pools.
fn chain_of_arrays() {
    let pool = pool(4, 2);
    let fill = |value: u64| Array::build(LENGTH, |numbers: &mut [u64]| numbers.fill(value));
    let add = |array: Array<u64>| -> (Array<u64>, u32) {
        (array.iter().map(|number| number + 1).collect(), std::process::id())
    };
    let array = |(array, _): (Array<u64>, u32)| array;
    let before = traffic().0;
    let mut output = pool.apply(fill, 5).output();
    let mut workers = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let next = pool.apply(add, output).output();
        workers.insert(next.get().wait().unwrap().1);
        output = pool.apply(array, next).output();
    }
    assert_eq!(output.get().wait().unwrap()[7], 15);
    let sent = traffic().0 - before;
    // A worker of the other host, which is as free, would get it over a wire.
    assert!(sent < (LENGTH * size_of::<u64>()) as u64 / 10, "{sent} bytes");
    assert!(workers.len() <= 2, "{workers:?}");
}

#[test]
fn tasks_run_where_their_arrays_are() {
    if over_nng() {
        Process::spawn(chain_of_arrays, ()).wait().unwrap();
    }
}
