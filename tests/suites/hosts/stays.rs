//! Large values stay at the host that made them. Without shared memory between hosts and this
//! process (`FIBER_LINK=nng`), that shows in the bytes that cross the wire.

use std::collections::BTreeMap;
use std::time::Duration;

use fiber::{Array, Output, Pool, Process, Queue};
use fiber_test_support::wait::wait_until;
use fiber_transport::traffic;
use rustix::process::{Pid, Signal, kill_process};

use super::arrays::over_nng;
use super::{distinct, is_running, kill, parent_pid, pool, send};

/// Elements of 20 MB.
const LENGTH: usize = 20_000_000 / size_of::<u64>();
const SIZE: u64 = (LENGTH * size_of::<u64>()) as u64;

fn fill(value: u64) -> (Array<u64>, u32) {
    (Array::build(LENGTH, |numbers: &mut [u64]| numbers.fill(value)), parent_pid())
}

fn add((array, _): (Array<u64>, u32)) -> (Array<u64>, u32) {
    (array.iter().map(|number| number + 1).collect(), parent_pid())
}

fn read((array, _): (Array<u64>, u32)) -> (u64, u32) {
    std::thread::sleep(Duration::from_millis(200));
    assert!(array.iter().all(|number| *number == array[0]));
    (array[0], parent_pid())
}

/// Returns how many bytes this process sends and receives meanwhile, in values.
fn crossed(work: impl FnOnce()) -> (u64, u64) {
    let before = traffic();
    work();
    let now = traffic();
    ((now.0 - before.0 + SIZE / 2) / SIZE, (now.1 - before.1 + SIZE / 2) / SIZE)
}

fn elsewhere() -> u64 {
    (fiber::value_memory().elsewhere + SIZE / 2) / SIZE
}

/// Runs in a process of its own, because the counted bytes are those of all pools.
fn values_of_two_hosts() {
    let pool = pool(4, 2);
    let mut output = pool.apply(fill, 5).output();
    let made = crossed(|| {
        for _ in 0..5 {
            output = pool.apply(add, output.clone()).output();
        }
        wait_until("the output", || output.is_ready());
    });
    assert_eq!(made, (0, 0));
    let stats = pool.stats();
    assert_eq!((stats.near_bytes, stats.near_bytes_at_home), (5 * SIZE, 5 * SIZE));
    // Values that nothing has any more are gone.
    wait_until("a value elsewhere", || elsewhere() == 1);
    // Workers of both hosts take it, and the second host gets it from the first.
    let read_everywhere = || {
        let seen = pool.map(read, vec![output.clone(); 8]).wait().unwrap();
        assert!(seen.iter().all(|(value, _)| *value == 10), "{seen:?}");
        distinct(&seen.iter().map(|(_, host)| *host).collect::<Vec<_>>())
    };
    let mut hosts = 0;
    assert_eq!(crossed(|| hosts = read_everywhere()), (0, 0));
    assert_eq!(hosts, 2);
    let ask = || assert_eq!(output.get().wait().unwrap().0[LENGTH - 1], 10);
    assert_eq!((crossed(ask), crossed(ask), elsewhere()), ((0, 1), (0, 0), 0));
    drop(output);
    wait_until("the end of all values", || fiber::value_memory().stored == 0);
}

/// A value without arrays, of about 20 MB.
fn many_words(count: u64) -> BTreeMap<u64, String> {
    (0..count).map(|number| (number, "words ".repeat(20))).collect()
}

/// Runs in a process of its own, because the counted bytes are those of all pools.
fn values_of_any_kind() {
    let pool = pool(2, 2);
    let made = || {
        let words = pool.apply(many_words, 150_000).output();
        let count = pool.apply(|words: BTreeMap<u64, String>| words.len(), words.clone());
        assert_eq!(count.wait().unwrap(), 150_000);
        assert_eq!(elsewhere(), 1);
        drop(words);
    };
    assert_eq!(crossed(made), (0, 0));
    let asked = || assert_eq!(pool.apply(many_words, 150_000).wait().unwrap().len(), 150_000);
    assert_eq!(crossed(asked), (0, 1));
}

#[test]
fn values_of_any_kind_stay() {
    if over_nng() {
        Process::spawn(values_of_any_kind, ()).wait().unwrap();
    }
}

#[test]
fn values_go_from_host_to_host() {
    if over_nng() {
        Process::spawn(values_of_two_hosts, ()).wait().unwrap();
    }
}

/// Notes that it runs.
fn noted(runs: Queue<u32>, (array, _): (Array<u64>, u32)) -> (Array<u64>, u32) {
    runs.put(parent_pid()).wait().unwrap();
    (array.iter().map(|number| number * 2).collect(), parent_pid())
}

#[test]
fn a_value_of_a_lost_host_is_made_again() {
    let (pool, runs) = (pool(4, 2), Queue::new().unwrap());
    let first = pool.apply(fill, 5).output();
    let second = pool.apply(add, first.clone()).output();
    // Nothing has the first one any more when it is lost.
    drop(first);
    let third = pool.apply(noted, (runs.clone(), second.clone())).output();
    let host = runs.get().wait().unwrap();
    wait_until("the third output", || third.is_ready());
    let (again, taken) = (pool.clone(), second.clone());
    kill(host);
    assert_eq!(again.apply(read, taken).wait().unwrap().0, 6);
    assert_eq!(second.get().wait().unwrap().0[0], 6);
    assert_eq!(third.get().wait().unwrap().0[0], 12);
}

/// Returns a value that its host alone has, and its host, if hosts are far.
fn made_by(pool: &Pool) -> (Output<(Array<u64>, u32)>, u32) {
    let output = pool.apply(fill, 7).output();
    wait_until("the output", || output.is_ready());
    let host = pool.apply(parent_pid, ()).wait().unwrap();
    (output, host)
}

#[test]
fn values_outlive_their_pool_and_hosts_that_end_in_order() {
    let ended = pool(2, 2);
    let (output, host) = made_by(&ended);
    ended.stop().wait().unwrap();
    wait_until("the host's end", || !is_running(host));
    assert_eq!(output.get().wait().unwrap().0[0], 7);

    let dropped = pool(2, 2);
    let (output, host) = made_by(&dropped);
    drop(dropped);
    wait_until("the host's end", || !is_running(host));
    assert_eq!(output.get().wait().unwrap().0[0], 7);
}

#[test]
fn a_host_that_is_asked_to_end_gives_its_values_away() {
    let pool = pool(2, 2);
    let (output, host) = made_by(&pool);
    send(Signal::TERM, host);
    wait_until("the host's end", || !is_running(host));
    let (array, made_by) = output.get().wait().unwrap();
    assert_eq!((array[0], made_by), (7, host));
}

#[test]
fn graphs_go_on_while_hosts_and_workers_are_killed() {
    /// Elements of more bytes than come at once.
    const LENGTH: usize = 40_000;
    const WIDTH: usize = 20;
    fn fill(value: u64) -> Array<u64> {
        vec![value; LENGTH].into()
    }
    fn add(one: Array<u64>, two: Array<u64>) -> Array<u64> {
        one.iter().zip(&*two).map(|(one, two)| one.wrapping_add(*two)).collect()
    }
    let pool = pool(6, 2).max_deaths(u32::MAX);
    let (victims, layers) = (pool.clone(), 20 * fiber_test_support::soak());
    let killer = std::thread::spawn(move || {
        for kills in 0..layers / 2 {
            let pids = || (std::process::id(), parent_pid());
            let (worker, host) = victims.apply(pids, ()).wait().unwrap();
            // It may have died with its host.
            let victim = if kills % 3 == 0 { host } else { worker };
            let _ = kill_process(Pid::from_raw(victim.cast_signed()).unwrap(), Signal::KILL);
            victims.wait_until_ready().wait().unwrap();
        }
    });
    let mut arrays = pool.map(fill, 0..WIDTH as u64).outputs();
    let mut expected: Vec<_> = (0..WIDTH as u64).collect();
    for layer in 0..layers {
        let place = |one: usize| (one + 1 + layer % (WIDTH - 1)) % WIDTH;
        let pair = |one: usize| (arrays[one].clone(), arrays[place(one)].clone());
        let pairs: Vec<_> = (0..WIDTH).map(pair).collect();
        expected = (0..WIDTH).map(|one| expected[one].wrapping_add(expected[place(one)])).collect();
        arrays = pool.map(add, pairs).outputs();
        // Long graphs wait now and then, so that they are not made at once.
        if layer % 10 == 9 {
            wait_until("all arrays", || arrays.iter().all(Output::is_ready));
        }
    }
    for (array, expected) in arrays.iter().zip(&expected) {
        let array = array.get().wait().unwrap();
        assert!(array.len() == LENGTH && array.iter().all(|value| value == expected));
    }
    killer.join().unwrap();
}

fn ask(output: Output<(Array<u64>, u32)>) -> u64 {
    output.get().wait().unwrap().0[LENGTH / 2]
}

#[test]
fn durable_calls_and_other_processes_get_values_that_stay() {
    let folder = std::env::temp_dir().join(format!("fiber-stays-{}", std::process::id()));
    let pool = pool(2, 2);
    let durable = pool.durable(fiber::Journal::at(folder.join("journal")));
    let (output, _) = made_by(&pool);
    // Its outcome is found by the bytes of the value.
    let (value, _) = durable.apply(read, output.clone()).wait().unwrap();
    let found = durable.apply(read, output).wait().unwrap();
    assert_eq!((value, found.0), (7, 7));
    let (output, _) = made_by(&pool);
    assert_eq!(Process::spawn(ask, output.clone()).wait().unwrap(), 7);
    assert_eq!(pool.apply(ask, output).wait().unwrap(), 7);
    drop((durable, pool));
    std::fs::remove_dir_all(folder).unwrap();
}
