//! Arrays cross the wire to a host once, and its processes share the memory.

use std::collections::BTreeMap;
use std::time::Duration;

use fiber::{Array, Broadcast, Pool, Process};
use fiber_transport::traffic;

use crate::{kill, pool, wait_until};

const WORKERS: usize = 8;
/// Elements of 20 MB.
const LENGTH: usize = 20_000_000 / size_of::<u64>();

/// The sum of the value in each worker, and whether the worker maps it.
type Seen = BTreeMap<u32, (u64, bool)>;

fn sum(value: &Array<u64>) -> u64 {
    value.iter().sum()
}

/// Reads the value in every worker.
fn read_everywhere(pool: &Pool, value: &Broadcast<Array<u64>>) -> Seen {
    let read = |value: Broadcast<Array<u64>>| {
        let value = value.get().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        (std::process::id(), (sum(&value), value.is_shared()))
    };
    let mut seen = Seen::new();
    while seen.len() < WORKERS {
        seen.extend(pool.map(read, vec![value.clone(); WORKERS]).wait().unwrap());
    }
    seen
}

/// The bytes of values that the only host has in shared memory, at its last heartbeat.
fn kept_by_host() -> Option<u64> {
    let processes = fiber::stats().unwrap().report.processes;
    let host = processes.iter().find(|process| process.role == fiber::stats::ProcessRole::Host)?;
    Some(host.usage.as_ref()?.shared)
}

/// Runs in a process of its own, because the counted bytes are those of all pools.
fn broadcast_to_a_host() {
    let over_nng = std::env::var("FIBER_LINK").is_ok_and(|link| link == "nng");
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
    let expected = if over_nng { size..size + size / 10 } else { 0..size / 10 };
    assert!(expected.contains(&sent), "{sent} bytes were sent");

    wait_until(|| kept_by_host() == Some(if over_nng { size.next_multiple_of(4096) } else { 0 }));
    drop(value);
    wait_until(|| kept_by_host() == Some(0) && fiber::value_memory().shared == 0);
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
    wait_until(|| fiber::value_memory().shared == 0);
}
