//! Arrays: from process to process as they were, within one host without a copy.

use actix::prelude::*;
use fiber::pool::Pool;
use fiber::{Array, AsyncManager, Process, Queue, RemoteAddr};
use serde::{Deserialize, Serialize};

fiber::test_harness!();

/// Elements of an array that is large enough to be shared.
const LARGE: usize = 1 << 20;

fn pool(processes: usize) -> Pool {
    Pool::builder().processes(processes).build().unwrap()
}

/// Returns whether processes of this host share arrays: not over nng.
fn is_sharing() -> bool {
    !std::env::var("FIBER_LINK").is_ok_and(|link| link == "nng")
}

fn numbers(from: u64) -> Array<u64> {
    Array::build(LARGE, |numbers| {
        numbers.iter_mut().zip(from..).for_each(|(number, value)| *number = value);
    })
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Observation {
    image: Array<u8>,
    weights: Vec<Option<Array<f32>>>,
    name: String,
}

#[test]
fn arrays_arrive_as_they_were_at_any_depth() {
    let pool = pool(2);
    for len in [0, 5, LARGE] {
        let observation = Observation {
            image: Array::from(vec![7; len]).reshape(&[1, len]).unwrap(),
            weights: vec![None, Some(vec![0.5; len].into()), Some(Array::default())],
            name: "x".repeat(100),
        };
        let echo = |observation: Observation, number: u32| (number, observation);
        let (number, got) = pool.apply(echo, (observation.clone(), 3)).wait().unwrap();
        assert_eq!((number, &got), (3, &observation));
        let calls = pool.map(|observation: Observation| observation, vec![got; 5]).wait().unwrap();
        assert!(calls.iter().all(|got| *got == observation));
        let child = Process::spawn(|observation: Observation| observation, observation.clone());
        assert_eq!(child.wait().unwrap(), observation);
        let queue = Queue::new().unwrap();
        queue.put(observation.clone()).wait().unwrap();
        assert_eq!(queue.get().wait().unwrap(), observation);
    }
}

#[test]
fn an_array_is_passed_on_through_workers_that_do_not_exist_any_more() {
    let pool = pool(2);
    let arrays = pool.map(numbers, (0..8).map(|x| x * 1000)).wait().unwrap();
    pool.close();
    pool.join().wait().unwrap();
    let next = self::pool(2);
    let sums = next.map(|array: Array<u64>| (array[0], array[LARGE - 1]), arrays.clone());
    for (index, (first, last)) in sums.wait().unwrap().into_iter().enumerate() {
        let from = index as u64 * 1000;
        assert_eq!((first, last), (from, from + LARGE as u64 - 1));
    }
    assert!(arrays.iter().enumerate().all(|(index, array)| array[7] == index as u64 * 1000 + 7));
}

#[test]
fn tasks_of_killed_workers_get_their_arrays_again() {
    fn die_at_first(array: Array<u64>, marker: String) -> u64 {
        if std::fs::remove_file(&marker).is_ok() {
            std::process::abort();
        }
        array.iter().sum()
    }
    let pool = pool(2);
    let directory = tempfile::tempdir().unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|index| {
            let marker = directory.path().join(index.to_string());
            std::fs::write(&marker, "").unwrap();
            (numbers(index), marker.to_str().unwrap().to_string())
        })
        .collect();
    let expected: Vec<u64> = tasks.iter().map(|(array, _)| array.iter().sum()).collect();
    assert_eq!(pool.map(die_at_first, tasks).wait().unwrap(), expected);
}

#[test]
fn memory_is_used_again_when_arrays_are_dropped() {
    let pool = pool(2);
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    };
    let round = || {
        let echo = |array: Array<u64>| array.iter().map(|x| x + 1).collect::<Array<u64>>();
        for array in pool.imap(echo, (0..16).map(numbers)).wait() {
            assert_eq!(array.unwrap().len(), LARGE);
        }
    };
    round();
    let before = resident();
    (0..8).for_each(|_| round());
    let after = resident();
    assert!(after < before + 200, "{before} MiB before, {after} MiB after");
}

/// Keeps the last array that it was sent.
struct Keeper(Array<u64>);

/// Answered with the array before, and whether this one is shared.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "(Array<u64>, bool)")]
struct Keep(Array<u64>);

impl Actor for Keeper {
    type Context = Context<Self>;
}

impl Handler<Keep> for Keeper {
    type Result = MessageResult<Keep>;

    fn handle(&mut self, Keep(array): Keep, _: &mut Context<Self>) -> Self::Result {
        let is_shared = array.is_shared();
        MessageResult((std::mem::replace(&mut self.0, array), is_shared))
    }
}

#[test]
fn actors_get_arrays_and_answer_with_them_without_a_copy() {
    let keeper = AsyncManager::start(|_: ()| Keeper(Array::default()), ()).wait().unwrap();
    let sent = pool(1).apply(numbers, 3).wait().unwrap();
    let (before, is_shared) = keeper.send(Keep(sent.clone())).wait().unwrap();
    assert_eq!((before.len(), is_shared), (0, is_sharing()));
    // Another process talks to the actor by a link of its own.
    let swap = |keeper: RemoteAddr<Keeper>| keeper.send(Keep(numbers(9))).wait().unwrap();
    let (before, is_shared) = Process::spawn(swap, keeper.addr()).wait().unwrap();
    assert_eq!((&before, is_shared), (&sent, is_sharing()));
    // The process that made the array has ended.
    let (before, _) = keeper.send(Keep(sent)).wait().unwrap();
    assert_eq!((before[0], before[LARGE - 1]), (9, LARGE as u64 + 8));
    assert_eq!(before.is_shared(), is_sharing());
    // A message is sent again with its array, to the next incarnation if this one does not answer.
    keeper.kill_process();
    let (before, _) = keeper.addr().resend().send(Keep(before)).wait().unwrap();
    assert!(before.is_empty() || before[0] == 3, "it is the answer of one of the two");
}

#[test]
fn a_broadcast_array_is_read_by_all_workers() {
    let pool = pool(3);
    let broadcast = pool.broadcast(numbers(5)).unwrap();
    let read = |index: usize, array: fiber::Broadcast<Array<u64>>| array.get().unwrap()[index];
    let tasks: Vec<_> = (0..50).map(|index| (index, broadcast.clone())).collect();
    let expected: Vec<u64> = (5..55).collect();
    assert_eq!(pool.map(read, tasks).wait().unwrap(), expected);
}

#[test]
fn an_array_that_a_worker_keeps_outlives_the_call() {
    use std::sync::Mutex;
    static KEPT: Mutex<Vec<Array<u64>>> = Mutex::new(Vec::new());
    let pool = pool(1);
    let keep = |array: Array<u64>| KEPT.lock().unwrap().push(array);
    pool.map(keep, (0..4).map(numbers)).wait().unwrap();
    // These would be written over the kept ones if those had been freed.
    let others = pool.map(|array: Array<u64>| array[0], (100..108).map(numbers)).wait().unwrap();
    assert_eq!(others, (100..108).collect::<Vec<u64>>());
    let kept = || KEPT.lock().unwrap().iter().map(|array| array[LARGE - 1]).collect::<Vec<_>>();
    let last = LARGE as u64 - 1;
    assert_eq!(pool.apply(kept, ()).wait().unwrap(), (last..last + 4).collect::<Vec<_>>());
}

#[test]
fn arrays_are_shared_on_this_host_only_where_links_can_lend() {
    let pool = pool(1);
    let is_shared = |array: Array<u64>| array.is_shared();
    assert_eq!(pool.apply(is_shared, numbers(0)).wait().unwrap(), is_sharing());
    assert!(!pool.apply(is_shared, vec![1, 2, 3].into()).wait().unwrap(), "it is small");
}
