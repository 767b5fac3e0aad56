//! Arrays: from process to process as they were, within one host without a copy.

use actix::prelude::*;
use fiber::manager::{Snapshot, Snapshots};
use fiber::pool::Pool;
use fiber::sync::{List, Map, Namespace, Value};
use fiber::{Array, AsyncManager, Process, Queue, RemoteAddr, Ring, RingNode};
use fiber_test_support::wait::wait_until;
use serde::{Deserialize, Serialize};

/// Elements of an array that is large enough to be shared.
const LARGE: usize = 1 << 20;

fn pool(processes: usize) -> Pool {
    Pool::builder().processes(processes).build().unwrap()
}

/// Returns whether processes of this host share arrays: not over nng.
pub(crate) fn is_sharing() -> bool {
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Plain {
    text: Option<String>,
    bytes: Vec<u8>,
    floats: Vec<Vec<f64>>,
    integers: Option<Option<Vec<i32>>>,
}

#[test]
fn large_vectors_and_texts_arrive_as_they_were() {
    let pool = pool(2);
    for len in [0, 100, LARGE] {
        let plain = Plain {
            text: Some("ä".repeat(len)),
            bytes: vec![200; len],
            floats: vec![vec![0.1; len], vec![]],
            integers: Some(Some((0..len as i32).collect())),
        };
        let echo = |plain: Plain, number: u32| (number, plain);
        assert_eq!(pool.apply(echo, (plain.clone(), 3)).wait().unwrap(), (3, plain.clone()));
        let results = pool.map(|plain: Plain| plain, vec![plain.clone(); 5]).wait().unwrap();
        assert!(results.iter().all(|got| *got == plain));
        let values = pool.broadcast(plain.clone()).unwrap();
        let broadcast =
            |values: fiber::Broadcast<Plain>| values.get().map(|plain| (*plain).clone());
        assert_eq!(pool.try_apply(broadcast, values.clone()).wait().unwrap(), plain);
        let child = Process::spawn(|plain: Plain| plain, plain.clone());
        assert_eq!(child.wait().unwrap(), plain);
        let queue = Queue::new().unwrap();
        queue.put(plain.clone()).wait().unwrap();
        assert_eq!(queue.get().wait().unwrap(), plain);
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
    // In a process of its own, in which no other test takes memory.
    let (before, after) = Process::spawn(resident_in_rounds, ()).wait().unwrap();
    assert!(after < before + 200, "{before} MiB before, {after} MiB after");
}

/// Sends arrays to workers and back, in rounds. Returns the resident memory in MiB after the first
/// round and after the last one.
fn resident_in_rounds() -> (usize, usize) {
    let pool = pool(2);
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    };
    let round = || {
        let copy = |array: Array<u64>| Array::from(array.to_vec());
        let arrays = (0..16).map(|x| Array::<u64>::build(LARGE, |numbers| numbers.fill(x)));
        for array in pool.imap(copy, arrays).wait() {
            assert_eq!(array.unwrap().len(), LARGE);
        }
    };
    round();
    let first = resident();
    (0..8).for_each(|_| round());
    (first, resident())
}

/// Keeps the last array that it was sent.
struct Keeper(Array<u64>);

/// Answered with the array before, and whether this one is shared.
#[fiber::message((Array<u64>, bool))]
#[derive(Clone)]
struct Keep(Array<u64>);

impl Actor for Keeper {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Keeper {
    fn keep(&mut self, Keep(array): Keep) -> (Array<u64>, bool) {
        let is_shared = array.is_shared();
        (std::mem::replace(&mut self.0, array), is_shared)
    }
}

impl Snapshot for Keeper {
    type State = Array<u64>;

    fn snapshot(&self) -> Array<u64> {
        self.0.clone()
    }

    fn restore(&mut self, state: Array<u64>) {
        self.0 = state;
    }
}

#[test]
fn an_actor_starts_and_restarts_with_arrays_that_are_not_copied() {
    let keeper = AsyncManager::builder()
        .snapshots(Snapshots::every_messages(1))
        .start(Keeper, numbers(7))
        .wait()
        .unwrap();
    let (first, _) = keeper.send(Keep(numbers(8))).wait().unwrap();
    assert_eq!((first[0], first[LARGE - 1]), (7, LARGE as u64 + 6));
    assert_eq!(first.is_shared(), is_sharing());
    // Its answer follows the snapshot of the message before.
    keeper.send(Keep(numbers(9))).wait().unwrap();
    keeper.kill_process();
    let (restored, _) = keeper.addr().resend().send(Keep(numbers(1))).wait().unwrap();
    assert!([8, 9].contains(&restored[0]), "{} is of no snapshot", restored[0]);
    assert_eq!(restored[LARGE - 1], restored[0] + LARGE as u64 - 1);
    assert_eq!(restored.is_shared(), is_sharing());
}

#[test]
fn processes_and_initializers_get_their_arrays_without_a_copy() {
    use std::sync::OnceLock;
    static SHARED: OnceLock<(bool, u64)> = OnceLock::new();
    let describe = |array: Array<u64>| (array.is_shared(), array[LARGE - 1]);
    let expected = (is_sharing(), LARGE as u64);
    assert_eq!(Process::spawn(describe, numbers(1)).wait().unwrap(), expected);
    let set = |array: Array<u64>| SHARED.set((array.is_shared(), array[LARGE - 1])).unwrap();
    let pool = Pool::builder().processes(1).initializer(set, numbers(1)).build().unwrap();
    assert_eq!(pool.apply(|| *SHARED.get().unwrap(), ()).wait().unwrap(), expected);
}

#[test]
fn shared_objects_keep_arrays_without_a_copy() {
    type Shared = (Value<Array<u64>>, Map<String, Array<u64>>, List<(u8, Array<u64>)>, Namespace);
    fn read((value, map, list, names): Shared, _: u8) -> fiber::Result<Vec<Array<u64>>> {
        let grown = value.update(|array| *array = numbers(array[0] + 1)).wait()?;
        let replaced = map.insert("a".into(), numbers(20)).wait()?.expect("there was one");
        let named = names.get::<Array<u64>>("n").wait()?.expect("there is one");
        Ok(vec![grown, replaced, list.get(0).wait()?.expect("there is one").1, named])
    }
    let value = Value::new(numbers(1)).unwrap();
    let (map, list, names) = (Map::new().unwrap(), List::new().unwrap(), Namespace::new().unwrap());
    map.insert("a".to_string(), numbers(10)).wait().unwrap();
    list.push((0, numbers(30))).wait().unwrap();
    names.set("n", numbers(40)).wait().unwrap();
    let shared: Shared = (value.clone(), map.clone(), list, names);
    let mut arrays = Process::builder().try_spawn(read, (shared, 0)).wait().unwrap();
    arrays.push(value.get().wait().unwrap());
    arrays.push(map.get(&"a".to_string()).wait().unwrap().unwrap());
    let first: Vec<u64> = arrays.iter().map(|array| array[0]).collect();
    assert_eq!(first, [2, 10, 30, 40, 2, 20]);
    assert!(arrays.iter().all(|array| array[LARGE - 1] == array[0] + LARGE as u64 - 1));
    let shared: Vec<bool> = arrays.iter().map(Array::is_shared).collect();
    assert_eq!(shared, [is_sharing(); 6]);
}

#[test]
fn ranks_get_return_and_restore_arrays_without_a_copy() {
    fn rank(mut node: RingNode, array: Array<u64>) -> fiber::Result<Vec<Array<u64>>> {
        match node.restored()? {
            None => {
                node.checkpoint(&array)?;
                node.barrier()?;
                std::process::abort();
            }
            Some(restored) => Ok(vec![array, restored, numbers(node.rank() as u64)]),
        }
    }
    // The bytes of a large checkpoint would still be on their way over nng when the ranks end.
    let array = if is_sharing() { numbers(5) } else { vec![5; 10].into() };
    let results = Ring::builder().size(2).try_run(rank, array).wait().unwrap();
    for (rank, arrays) in results.into_iter().enumerate() {
        let first: Vec<u64> = arrays.iter().map(|array| array[0]).collect();
        assert_eq!(first, [5, 5, rank as u64]);
        assert!(arrays.iter().all(|array| array.is_shared() == is_sharing()));
    }
}

#[test]
fn an_array_that_is_sent_often_is_copied_to_shared_memory_once() {
    fn send_often() -> (bool, u64) {
        let pool = pool(1);
        let weights: Array<u64> = (0..LARGE as u64).collect();
        let before = weights.is_shared();
        let read = |array: Array<u64>, index: usize| array[index];
        let calls: Vec<_> =
            (0..8).map(|index| pool.apply(read, (weights.clone(), index))).collect();
        let shared = fiber::value_memory().shared;
        for (index, call) in calls.into_iter().enumerate() {
            assert_eq!(call.wait().unwrap(), index as u64);
        }
        (before, shared)
    }
    // In a process of its own, in which no other test has arrays.
    let size = if is_sharing() { (LARGE * size_of::<u64>()) as u64 } else { 0 };
    assert_eq!(Process::spawn(send_often, ()).wait().unwrap(), (false, size));
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
fn idle_workers_drop_a_broadcast_array_with_its_last_handle() {
    fn broadcast() {
        let pool = pool(3);
        let unread = pool.broadcast(numbers(1)).unwrap();
        let read = pool.broadcast(numbers(2)).unwrap();
        let first = |array: fiber::Broadcast<Array<u64>>| array.get().unwrap()[0];
        assert_eq!(pool.map(first, vec![read.clone(); 9]).wait().unwrap(), [2; 9]);
        drop((unread, read));
        wait_until("the end of the arrays", || fiber::value_memory().shared == 0);
    }
    // In a process of its own, in which no other test has arrays.
    Process::spawn(broadcast, ()).wait().unwrap();
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
    assert!(!pool.apply(is_shared, Array::from(vec![1, 2, 3])).wait().unwrap(), "it is small");
}
