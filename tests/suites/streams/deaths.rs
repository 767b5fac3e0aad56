//! Streams whose producers or consumers die.

use fiber::sync::{Event, Value};
use fiber::{Error, Process, Sender, Stream};

use super::{endless, pool};

fn die() {
    fiber_test_support::signals::die()
}

#[test]
fn a_producer_that_kills_its_workers_is_abandoned_behind_its_items() {
    let dies = |out: Sender<u64>| {
        (0..5).for_each(|n| out.send(n).wait().unwrap());
        out.flush().wait().unwrap();
        die();
    };
    let items: Vec<_> = pool(1).max_deaths(2).stream(dies, ()).wait().collect();
    assert_eq!(items.len(), 6);
    for (n, item) in (0..).zip(&items[..5]) {
        assert_eq!(*item.as_ref().unwrap(), n);
    }
    assert!(matches!(items[5], Err(Error::WorkerDied { deaths: 2, .. })), "{:?}", items[5]);
}

#[test]
fn a_stream_that_runs_once_ends_with_its_worker_once_an_item_was_delivered() {
    fn dies(after: u64, runs: Value<u64>, out: Sender<u64>) -> fiber::Result<()> {
        let run = runs.update(|runs| *runs += 1).wait()?;
        (0..after).try_for_each(|n| out.send(n).wait())?;
        out.flush().wait()?;
        if run == 1 {
            die();
        }
        out.send(7).wait()
    }
    let runs = Value::new(0).unwrap();
    let pool = pool(1).once();
    let items: Vec<_> = pool.stream(dies, (1, runs.clone())).wait().collect();
    assert_eq!(items.len(), 2);
    assert!(matches!(items[1], Err(Error::WorkerDied { .. })), "{:?}", items[1]);
    assert_eq!(runs.get().wait().unwrap(), 1);
    // Without an item, it runs again.
    runs.set(0).wait().unwrap();
    let items = pool.stream(dies, (0, runs.clone())).wait().collect::<fiber::Result<Vec<_>>>();
    assert_eq!(items.unwrap(), [7]);
    assert_eq!(runs.get().wait().unwrap(), 2);
}

#[test]
fn the_death_of_the_consumer_stops_the_producer() {
    let (pool, ended) = (pool(1), Event::new().unwrap());
    let numbers = pool.stream(endless, ended.clone());
    let consume = |numbers: Stream<u64>| {
        assert_eq!(numbers.wait().take(10).map(Result::unwrap).sum::<u64>(), 45);
        die();
    };
    assert!(Process::spawn(consume, numbers).wait().is_err());
    ended.wait_set().wait().unwrap();
    pool.stop().wait().unwrap();
}

#[test]
fn a_consumer_that_runs_again_finds_the_stream_ended() {
    fn consume(numbers: Stream<u64>, died: Value<bool>) -> String {
        let mut numbers = numbers.wait();
        if !died.get().wait().unwrap() {
            assert_eq!(numbers.next().unwrap().unwrap(), 0);
            died.set(true).wait().unwrap();
            die();
        }
        let error = numbers.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }) && numbers.next().is_none(), "{error}");
        error.to_string()
    }
    let (producers, consumers, ended) = (pool(1), pool(1), Event::new().unwrap());
    let numbers = producers.stream(endless, ended.clone());
    let died = Value::new(false).unwrap();
    let problem = consumers.apply(consume, (numbers, died)).wait().unwrap();
    assert!(problem.contains("its other end is gone"), "{problem}");
    ended.wait_set().wait().unwrap();
}
