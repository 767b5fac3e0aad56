//! Queues between processes.

use std::collections::HashSet;
use std::time::Duration;

use fiber::sync::{Barrier, Event, Value};
use fiber::{Error, Pool, Process, Queue};
use fiber_test_support::wait::wait_until;
use futures_util::StreamExt;

use crate::sync::hang;

const MOMENT: Duration = Duration::from_millis(20);

fn all<T: serde::Serialize + serde::de::DeserializeOwned + Send + 'static>(
    queue: &Queue<T>,
) -> Vec<T> {
    queue.stream().wait().map(Result::unwrap).collect()
}

#[test]
fn a_child_and_a_grandchild_put_and_get() {
    let (there, back) = (Queue::new().unwrap(), Queue::new().unwrap());
    let child = |there: Queue<u32>, back: Queue<u32>| {
        let grandchild = |there: Queue<u32>, back: Queue<u32>| {
            for n in there.stream().wait() {
                back.put(n.unwrap() + 1).wait().unwrap();
            }
        };
        back.put(0).wait().unwrap();
        Process::spawn(grandchild, (there, back)).wait().unwrap();
    };
    let process = Process::spawn(child, (there.clone(), back.clone()));
    for n in 0..10_000 {
        there.put(n).wait().unwrap();
    }
    there.close().wait().unwrap();
    process.wait().unwrap();
    back.close().wait().unwrap();
    assert!(all(&back).into_iter().eq(0..=10_000));
}

#[test]
fn a_queue_made_in_a_child_works_from_here_while_the_child_lives() {
    let (made, done) = (Queue::new().unwrap(), Event::new().unwrap());
    let make = |made: Queue<Queue<String>>, done: Event| {
        let queue = Queue::new().unwrap();
        queue.put("from the child".to_string()).wait().unwrap();
        made.put(queue).wait().unwrap();
        done.wait_set().wait().unwrap();
    };
    let child = Process::spawn(make, (made.clone(), done.clone()));
    let queue = made.get().wait().unwrap();
    assert_eq!(queue.get().wait().unwrap(), "from the child");
    queue.put("from here".to_string()).wait().unwrap();
    queue.flush().wait().unwrap();
    assert_eq!(queue.len().wait().unwrap(), 1);
    let waits = queue.clone();
    assert_eq!(queue.get().wait().unwrap(), "from here");
    done.set().wait().unwrap();
    child.wait().unwrap();
    let error = waits.get().wait().unwrap_err();
    assert!(matches!(error, Error::OwnerEnded { .. }), "{error}");
    assert!(error.to_string().contains(concat!("the queue made at ", file!())), "{error}");
    assert!(waits.put(String::new()).wait().is_err() || waits.flush().wait().is_err());
}

#[test]
fn waiting_consumers_are_served_in_turn() {
    let (queue, got, round) =
        (Queue::new().unwrap(), Queue::new().unwrap(), Barrier::new(5).unwrap());
    let consume = |number: usize, queue: Queue<u32>, got: Queue<usize>, round: Barrier| {
        for _ in 0..150 {
            queue.get().wait().unwrap();
            got.put(number).wait().unwrap();
            round.wait_all().wait().unwrap();
        }
    };
    let consumers: Vec<_> = (0..4)
        .map(|number| Process::spawn(consume, (number, queue.clone(), got.clone(), round.clone())))
        .collect();
    for _ in 0..150 {
        (0..4).for_each(|n| queue.put(n).wait().unwrap());
        let all: HashSet<usize> = (0..4).map(|_| got.get().wait().unwrap()).collect();
        assert_eq!(all.len(), 4, "each gets one, however fast one of them is");
        round.wait_all().wait().unwrap();
    }
    consumers.into_iter().for_each(|consumer| consumer.wait().unwrap());
}

#[test]
fn a_consumer_that_stops_at_a_sentinel_leaves_no_element_before_it() {
    let (queue, counts, round) =
        (Queue::new().unwrap(), Queue::new().unwrap(), Barrier::new(5).unwrap());
    let work = |queue: Queue<Option<u32>>, counts: Queue<u32>, round: Barrier| {
        for _ in 0..200 {
            round.wait_all().wait().unwrap();
            let mut count = 0;
            while let Some(n) = queue.get().wait().unwrap() {
                // The consumers use up their prefetched elements at different times.
                std::hint::black_box((0..n % 7 * 1000).fold(0, |sum, n| sum ^ n));
                count += 1;
            }
            counts.put(count).wait().unwrap();
        }
    };
    let workers: Vec<_> = (0..4)
        .map(|_| Process::spawn(work, (queue.clone(), counts.clone(), round.clone())))
        .collect();
    for _ in 0..200 {
        round.wait_all().wait().unwrap();
        (0..100).for_each(|n| queue.put(Some(n)).wait().unwrap());
        (0..4).for_each(|_| queue.put(None).wait().unwrap());
        assert_eq!((0..4).map(|_| counts.get().wait().unwrap()).sum::<u32>(), 100);
    }
    workers.into_iter().for_each(|worker| worker.wait().unwrap());
}

#[test]
fn a_short_lived_handle_loses_no_elements() {
    let (queue, pool) = (Queue::new().unwrap(), Pool::new(2).unwrap());
    // Each task has a handle of its own. The process drops its last handle while elements may be on
    // their way to it.
    let take = |queue: Queue<u32>, count: usize| {
        (0..count).map(|_| queue.get().wait().unwrap()).collect::<Vec<_>>()
    };
    for _ in 0..10 {
        (0..300).for_each(|n| queue.put(n).wait().unwrap());
        let tasks: Vec<_> = (0..100).map(|n| (queue.clone(), n % 5 + 1)).collect();
        let mut seen: Vec<u32> =
            pool.map(take, tasks).wait().unwrap().into_iter().flatten().collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..300));
    }
}

#[test]
fn a_bounded_queue_holds_no_more_than_its_capacity() {
    let queue = Queue::bounded(2).unwrap();
    let overfill = |queue: Queue<u32>| {
        let first = queue.put(1).wait().is_ok() && queue.try_put(2).wait().unwrap() == Ok(());
        let full = queue.try_put(3).wait().unwrap() == Err(3);
        let late = matches!(queue.put(4).timeout(MOMENT).wait(), Err(Error::TimedOut { .. }));
        drop(queue.put(5));
        (first, full, late)
    };
    assert_eq!(Process::spawn(overfill, queue.clone()).wait().unwrap(), (true, true, true));
    assert!(matches!(queue.put(6).timeout(MOMENT).wait(), Err(Error::TimedOut { .. })));
    let waits = queue.put(7);
    assert_eq!([queue.get().wait().unwrap(), queue.get().wait().unwrap()], [1, 2]);
    waits.wait().unwrap();
    assert_eq!(queue.get().wait().unwrap(), 7);
    assert!(queue.is_empty().wait().unwrap(), "the withdrawn element is not in it");
    Queue::<u32>::bounded(0).unwrap_err();

    let produce = |queue: Queue<u32>| (0..500).for_each(|n| queue.put(n).wait().unwrap());
    let producer = Process::spawn(produce, queue.clone());
    for n in 0..500 {
        assert!(queue.len().wait().unwrap() <= 2);
        assert_eq!(queue.get().wait().unwrap(), n);
    }
    producer.wait().unwrap();
}

#[test]
fn unused_prefetched_elements_go_to_consumers_that_wait() {
    let (queue, used, stop) = (Queue::new().unwrap(), Queue::new().unwrap(), Event::new().unwrap());
    let greedy = |queue: Queue<u32>, used: Queue<u32>, stop: Event| {
        for _ in 0..3000 {
            used.put(queue.get().wait().unwrap()).wait().unwrap();
        }
        used.flush().wait().unwrap();
        stop.wait_set().wait().unwrap();
    };
    (0..10_000).for_each(|n| queue.put(n).wait().unwrap());
    let child = Process::spawn(greedy, (queue.clone(), used.clone(), stop.clone()));
    let mut seen: Vec<u32> = (0..3000).map(|_| used.get().wait().unwrap()).collect();
    // It has prefetched some thousands, and holds them.
    seen.extend((0..7000).map(|_| queue.get().wait().unwrap()));
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..10_000));
    stop.set().wait().unwrap();
    child.wait().unwrap();
}

#[test]
fn join_waits_until_the_work_on_all_elements_is_done() {
    let queue = Queue::new().unwrap();
    (0..10).for_each(|n| queue.put(n).wait().unwrap());
    assert!(matches!(queue.join().timeout(MOMENT).wait(), Err(Error::TimedOut { .. })));
    let work = |queue: Queue<u32>| {
        for _ in 0..5 {
            queue.get().wait().unwrap();
            queue.task_done();
            queue.get_acknowledged().wait().unwrap().acknowledge().wait().unwrap();
        }
        queue.join().wait().unwrap();
    };
    let worker = Process::spawn(work, queue.clone());
    queue.join().wait().unwrap();
    worker.wait().unwrap();
}

#[test]
fn a_closed_queue_can_be_emptied_and_then_fails() {
    let queue = Queue::new().unwrap();
    let consume = |queue: Queue<u32>| queue.stream().wait().map(Result::unwrap).sum::<u32>();
    let consumers: Vec<_> = (0..2).map(|_| Process::spawn(consume, queue.clone())).collect();
    (0..1000).for_each(|n| queue.put(n).wait().unwrap());
    queue.close().wait().unwrap();
    let error = queue.put(1).wait().unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    let sum: u32 = consumers.into_iter().map(|consumer| consumer.wait().unwrap()).sum();
    assert_eq!(sum, 999 * 500);
    assert!(matches!(queue.get().wait().unwrap_err(), Error::Closed { .. }));
    assert!(matches!(queue.get_acknowledged().wait().unwrap_err(), Error::Closed { .. }));
    assert!(matches!(queue.try_put(1).wait().unwrap_err(), Error::Closed { .. }));
    let late = |queue: Queue<u32>| {
        let put = queue.put(1).wait().and_then(|()| queue.flush().wait());
        (put.is_err(), queue.get().wait().is_err())
    };
    assert_eq!(Process::spawn(late, queue).wait().unwrap(), (true, true));
}

#[test]
fn an_element_that_does_not_deserialize_fails_alone() {
    let queue = Queue::<serde_json::Value>::new().unwrap();
    queue.put("text".into()).wait().unwrap();
    queue.put(7.into()).wait().unwrap();
    let as_numbers: Queue<u32> =
        serde_json::from_value(serde_json::to_value(&queue).unwrap()).unwrap();
    let error = as_numbers.get().wait().unwrap_err();
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert_eq!(as_numbers.get().wait().unwrap(), 7);
    let mut other = serde_json::to_value(&queue).unwrap();
    other[0]["session"] = 7.into();
    let other: Queue<u32> = serde_json::from_value(other).unwrap();
    assert!(matches!(other.get().wait().unwrap_err(), Error::OtherSession { .. }));
}

#[test]
fn elements_arrive_before_the_next_operation_of_their_process() {
    let pool = Pool::new(2).unwrap();
    let queue = Queue::new().unwrap();
    let count = Value::new(0).unwrap();
    for round in 0..20 {
        let put = |queue: Queue<u32>, count: Value<u32>| {
            (0..50).for_each(|n| queue.put(n).wait().unwrap());
            count.update(|count| *count += 50).wait().unwrap();
        };
        pool.map(put, vec![(queue.clone(), count.clone()); 2]).wait().unwrap();
        assert_eq!(count.get().wait().unwrap(), (round + 1) * 100);
        assert_eq!(queue.len().wait().unwrap() as u32, (round + 1) * 100);
    }
}

#[test]
fn async_code_awaits_and_streams() {
    actix::System::new().block_on(async {
        let queue = Queue::new().unwrap();
        let put = |queue: Queue<u32>| {
            (0..100).for_each(|n| queue.put(n).wait().unwrap());
            queue.close().wait().unwrap();
        };
        let child = Process::spawn(put, queue.clone());
        let all: Vec<u32> = queue.stream().map(Result::unwrap).collect().await;
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        child.await.unwrap();
    });
}

#[test]
fn operations_fail_with_the_reason_when_the_owner_dies() {
    let made = Queue::new().unwrap();
    let own = |made: Queue<Queue<u32>>| {
        let queue = Queue::bounded(1).unwrap();
        queue.put(1).wait().unwrap();
        made.put(queue).wait().unwrap();
        made.put(Queue::new().unwrap()).wait().unwrap();
        made.flush().wait().unwrap();
        hang((), &Event::new().unwrap());
    };
    let owner = Process::spawn(own, made.clone());
    let (full, empty) = (made.get().wait().unwrap(), made.get().wait().unwrap());
    wait_until("one element", || full.len().wait().unwrap() == 1);
    let wait = |full: Queue<u32>, empty: Queue<u32>| {
        let (put, take, join) = (full.put(2), empty.get_acknowledged(), full.join());
        let get = empty.get().wait().is_err();
        [put.wait().is_err(), take.wait().is_err(), join.wait().is_err(), get]
    };
    let waiter = Process::spawn(wait, (full.clone(), empty.clone()));
    let here = (full.put(2), empty.get_acknowledged(), full.join());
    owner.kill();
    assert!(here.0.wait().is_err() && here.1.wait().is_err() && here.2.wait().is_err());
    assert_eq!(waiter.wait().unwrap(), [true; 4]);
}
