//! Streams that travel.

use fiber::sync::Event;
use fiber::{Array, Error, Process, Sender, Stream};
use futures_util::{FutureExt, StreamExt};

use super::{count, pool};

const ITEMS: u64 = 30_000;

/// Takes some numbers, and passes the others on.
fn take(mut numbers: Stream<u64>, first: u64, some: u64) -> Stream<u64> {
    for (expected, number) in (first..first + some).zip(&mut numbers) {
        assert_eq!(number.unwrap(), expected);
    }
    numbers
}

#[test]
fn a_stream_goes_on_in_another_process_where_it_stopped_here() {
    let pool = pool(1);
    let numbers = take(pool.stream(count, ITEMS), 0, 1000);
    let numbers = Process::spawn(take, (numbers, 1000, 5000)).wait().unwrap();
    // It has come back, and waits for a moment in this process.
    let numbers = take(numbers, 6000, 1);
    let numbers = Process::spawn(take, (numbers, 6001, 0)).wait().unwrap();
    let rest = |numbers: Stream<u64>| {
        let numbers = take(numbers, 6001, 999);
        let last = Process::spawn(take, (numbers, 7000, ITEMS)).wait().unwrap();
        assert_eq!(last.wait().count(), 0);
    };
    Process::spawn(rest, numbers).wait().unwrap();
}

#[test]
fn an_item_that_has_come_for_the_reader_here_goes_on_with_the_stream() {
    let send = |go: Event, out: Sender<Array<u8>>| {
        go.wait_set().wait()?;
        (0..20).try_for_each(|n| out.send(Array::from(vec![n; 100_000])).wait())
    };
    let check = |arrays: Stream<Array<u8>>| {
        for (n, array) in (0..).zip(arrays) {
            assert!(array.unwrap().iter().all(|x| *x == n));
        }
    };
    // The reader waits in the owner's process, and then in another one.
    fn wait_and_pass(mut arrays: Stream<Array<u8>>, go: Event) -> Stream<Array<u8>> {
        assert!(arrays.next().now_or_never().is_none());
        go.set().wait().unwrap();
        arrays
    }
    let (pool, go) = (pool(1), Event::new().unwrap());
    let arrays = wait_and_pass(pool.stream(send, go.clone()), go.clone());
    Process::spawn(check, arrays).wait().unwrap();
    go.clear().wait().unwrap();
    let arrays = pool.stream(send, go.clone());
    let arrays = Process::spawn(wait_and_pass, (arrays, go)).wait().unwrap();
    Process::spawn(check, arrays).wait().unwrap();
}

#[test]
fn a_stream_ends_with_the_words_of_the_process_that_knows_why() {
    let fails = |out: Sender<u64>| {
        out.send(1).wait().unwrap();
        panic!("the producer has an accident");
    };
    let consume = |numbers: Stream<u64>| {
        let mut numbers = numbers.wait();
        assert_eq!(numbers.next().unwrap().unwrap(), 1);
        match numbers.next() {
            Some(Err(Error::StreamFailed { problem })) => problem,
            other => panic!("{other:?}"),
        }
    };
    let pool = pool(1);
    let problem = Process::spawn(consume, pool.stream(fails, ())).wait().unwrap();
    assert!(problem.contains("the producer has an accident"), "{problem}");
}
