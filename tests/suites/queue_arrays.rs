//! Arrays in queues and pipes. This process owns the queues and makes no arrays: those of the
//! children pass through it.

use std::time::Duration;

use fiber::pipe::{PipeReceiver, PipeSender};
use fiber::sync::Event;
use fiber::{Array, Pipe, Process, Queue, value_memory};
use fiber_test_support::wait::wait_until;
use futures_util::FutureExt;

/// Elements of an array of 1 MiB.
const MIB: usize = (1 << 20) / size_of::<u64>();
/// Elements of an array of 64 KiB.
const SHORT: usize = MIB / 16;

/// A number, and an array unless the number is odd.
type Element = (u64, Option<Array<u64>>);

/// Returns whether processes of this host share arrays: not over nng.
fn is_sharing() -> bool {
    let has = |name: &str, value: &str| std::env::var(name).is_ok_and(|set| set == value);
    !has("FIBER_LINK", "nng") && !has("FIBER_SHARED_MEMORY", "false")
}

fn array(len: usize, from: u64) -> Array<u64> {
    Array::build(len, |numbers| {
        numbers.iter_mut().zip(from..).for_each(|(number, value)| *number = value);
    })
}

/// Asserts that the array is `array(len, from)`, and was not copied on its way.
fn check(got: &Array<u64>, len: usize, from: u64) {
    let is_right = got.len() == len && got.iter().copied().eq(from..from + len as u64);
    assert!(is_right, "array {from} is not what was sent: {got:?}");
    assert_eq!(got.is_shared(), is_sharing());
}

/// Waits until no process uses an array of this one.
fn until_arrays_are_free() {
    wait_until("the end of the arrays", || value_memory().shared == 0);
}

/// Puts arrays in, and ends when nobody uses them.
fn produce(queue: Queue<Array<u64>>, len: usize, count: u64) {
    (0..count).for_each(|n| queue.put(array(len, n)).wait().unwrap());
    until_arrays_are_free();
}

#[test]
fn arrays_go_from_child_to_child_in_order_and_their_memory_is_freed() {
    const COUNT: u64 = 40;
    let (queue, done) = (Queue::<Element>::new().unwrap(), Event::new().unwrap());
    let produce = |queue: Queue<Element>| {
        for n in 0..COUNT {
            queue.put((n, (n % 2 == 0).then(|| array(MIB, n)))).wait().unwrap();
        }
        until_arrays_are_free();
    };
    let consume = |queue: Queue<Element>, done: Event| {
        for n in 0..COUNT {
            let (number, got) = queue.get().wait().unwrap();
            assert_eq!((number, got.is_some()), (n, n % 2 == 0));
            got.iter().for_each(|got| check(got, MIB, n));
        }
        // The owner frees the last arrays, too, although this asks for no more.
        done.wait_set().wait().unwrap();
    };
    let consumer = Process::spawn(consume, (queue.clone(), done.clone()));
    Process::spawn(produce, queue).wait().unwrap();
    done.set().wait().unwrap();
    consumer.wait().unwrap();
    assert_eq!(value_memory().shared, 0, "the owner copied an array");
}

#[test]
fn an_array_is_delivered_again_when_its_consumer_is_killed() {
    let (queue, taken) = (Queue::new().unwrap(), Event::new().unwrap());
    let producer = Process::spawn(produce, (queue.clone(), MIB, 2));
    let take = |queue: Queue<Array<u64>>, taken: Event| {
        let delivery = queue.get_acknowledged().wait().unwrap();
        check(&delivery, MIB, 0);
        taken.set().wait().unwrap();
        Event::new().unwrap().wait_set().wait().unwrap();
    };
    let consumer = Process::spawn(take, (queue.clone(), taken.clone()));
    taken.wait_set().wait().unwrap();
    consumer.kill();
    let mut deliveries: Vec<_> = (0..2).map(|_| queue.get_acknowledged().wait().unwrap()).collect();
    deliveries.sort_by_key(|delivery| delivery[0]);
    for (n, delivery) in (0..).zip(deliveries) {
        check(&delivery, MIB, n);
        delivery.acknowledge().wait().unwrap();
    }
    producer.wait().unwrap();
}

#[test]
fn arrays_of_killed_producers_can_be_received() {
    let queue = Queue::new().unwrap();
    let die = |queue: Queue<Array<u64>>| {
        (0..8).for_each(|n| queue.put(array(MIB, n)).wait().unwrap());
        queue.flush().wait().unwrap();
        std::process::abort();
    };
    Process::builder().spawn(die, queue.clone()).wait().unwrap_err();
    (0..8).for_each(|n| check(&queue.get().wait().unwrap(), MIB, n));
}

#[test]
fn single_arrays_are_put_and_got_if_there_is_room() {
    let (queue, full) = (Queue::<Array<u64>>::bounded(1).unwrap(), Event::new().unwrap());
    let fill = |queue: Queue<Array<u64>>, full: Event| {
        assert!(queue.try_put(array(MIB, 1)).wait().unwrap().is_ok());
        let refused = queue.try_put(array(MIB, 2)).wait().unwrap().unwrap_err();
        assert!(queue.put(refused).timeout(Duration::ZERO).wait().is_err());
        let waits = queue.put(array(MIB, 3));
        full.set().wait().unwrap();
        waits.wait().unwrap();
        until_arrays_are_free();
    };
    let child = Process::spawn(fill, (queue.clone(), full.clone()));
    full.wait_set().wait().unwrap();
    check(&queue.try_get().wait().unwrap().unwrap(), MIB, 1);
    check(&queue.get().wait().unwrap(), MIB, 3);
    assert!(queue.try_get().wait().unwrap().is_none());
    child.wait().unwrap();
}

#[test]
fn an_array_that_arrived_for_a_dropped_get_comes_again() {
    let give_up = |queue: Queue<Array<u64>>| {
        let mut get = queue.get();
        assert!((&mut get).now_or_never().is_none());
        queue.put(array(MIB, 0)).wait().unwrap();
        // The answer comes after the array.
        assert_eq!(queue.len().wait().unwrap(), 0);
        drop(get);
        check(&queue.get().wait().unwrap(), MIB, 0);
        until_arrays_are_free();
    };
    Process::spawn(give_up, Queue::new().unwrap()).wait().unwrap();
}

#[test]
fn a_pipe_carries_arrays_both_ways() {
    const COUNT: u64 = 20;
    let (one, other) = Pipe::<Array<u64>>::new().unwrap();
    let send = |pipe: Pipe<Array<u64>>| {
        for n in 0..COUNT {
            pipe.send(array(MIB, n)).wait().unwrap();
            check(&pipe.recv().wait().unwrap(), MIB, n + 1);
        }
        until_arrays_are_free();
    };
    let answer = |pipe: Pipe<Array<u64>>| {
        for (n, got) in (0..COUNT).zip(pipe.stream()) {
            check(&got.unwrap(), MIB, n);
            pipe.send(array(MIB, n + 1)).wait().unwrap();
        }
        until_arrays_are_free();
    };
    let sender = Process::spawn(send, one);
    Process::spawn(answer, other).wait().unwrap();
    sender.wait().unwrap();
}

#[test]
fn arrays_that_no_end_of_a_pipe_can_receive_are_freed() {
    let (sender, receiver) = Pipe::one_way().unwrap();
    let ended = Event::new().unwrap();
    let send = |sender: PipeSender<Array<u64>>, sent: Event| {
        (0..20).for_each(|n| sender.send(array(SHORT, n)).wait().unwrap());
        sent.set().wait().unwrap();
        until_arrays_are_free();
        drop(sender);
    };
    let receive = |receiver: PipeReceiver<Array<u64>>, sent: Event, ended: Event| {
        sent.wait_set().wait().unwrap();
        // More arrive with these.
        (0..5).for_each(|n| check(&receiver.recv().wait().unwrap(), SHORT, n));
        drop(receiver);
        ended.wait_set().wait().unwrap();
    };
    let sent = Event::new().unwrap();
    let receiver = Process::spawn(receive, (receiver, sent.clone(), ended.clone()));
    Process::spawn(send, (sender, sent)).wait().unwrap();
    ended.set().wait().unwrap();
    receiver.wait().unwrap();
}

#[test]
fn arrays_count_towards_the_bytes_that_a_pipe_holds() {
    let fill = || {
        let (sender, receiver): (PipeSender<Array<u64>>, PipeReceiver<_>) =
            Pipe::one_way().unwrap();
        let send = |n| sender.send(array(MIB, n));
        (0..4).for_each(|n| send(n).now_or_never().expect("there is room").unwrap());
        let mut fifth = send(4);
        assert!((&mut fifth).now_or_never().is_none(), "the pipe holds 4 MiB");
        check_here(&receiver, 0);
        fifth.wait().unwrap();
        (1..5).for_each(|n| check_here(&receiver, n));
        assert_eq!(value_memory().shared, 0);
    };
    fn check_here(receiver: &PipeReceiver<Array<u64>>, from: u64) {
        check(&receiver.recv().wait().unwrap(), MIB, from);
    }
    Process::spawn(fill, ()).wait().unwrap();
}
