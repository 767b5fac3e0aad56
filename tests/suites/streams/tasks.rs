//! Streams of tasks whose workers live.

use fiber::sync::{Event, Value};
use fiber::{Array, Error, Pool, Sender, Stream};
use fiber_test_support::wait::{wait_for, wait_until};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::{count, endless, pool};

fn all<T: serde::de::DeserializeOwned>(stream: Stream<T>) -> Vec<T> {
    stream.wait().collect::<fiber::Result<_>>().unwrap()
}

#[test]
fn a_task_answers_with_many_values() {
    let pool = pool(1);
    assert_eq!(all(pool.stream(count, 100_000)), Vec::from_iter(0..100_000));
    assert_eq!(all(pool.stream(count, 0)), [0; 0]);
    let none = |out: Sender<String>| out.send("only".to_string()).wait();
    assert_eq!(all(pool.stream(none, ())), ["only"]);
    let three = |a: u8, b: String, c: (u8, u8), out: Sender<String>| {
        out.send(format!("{a}{b}{c:?}")).wait()
    };
    assert_eq!(all(pool.stream(three, (1, "x".to_string(), (2, 3)))), ["1x(2, 3)"]);
    async fn later(end: u32, out: Sender<u32>) {
        for n in 0..end {
            out.send(n).await.unwrap();
        }
    }
    assert_eq!(all(pool.stream(later, 3)), [0, 1, 2]);
    let output = pool.apply(|x: u64| x, 5).output();
    assert_eq!(all(pool.stream(count, output)), Vec::from_iter(0..5));
}

#[test]
fn a_stream_without_a_buffer_gives_its_items_one_by_one() {
    for bytes in [0, 1] {
        assert_eq!(all(pool(1).buffer(bytes).stream(count, 100)), Vec::from_iter(0..100));
    }
}

#[test]
fn a_failure_comes_behind_the_items() {
    let fails = |how: String, out: Sender<u64>| {
        (0..1000).try_for_each(|n| out.send(n).wait()).map_err(|error| error.to_string())?;
        assert_eq!(how, "err", "the producer panics");
        Err::<(), _>("the producer gives up".to_string())
    };
    let pool = pool(1);
    for (how, text) in [("err", "gives up"), ("panic", "the producer panics")] {
        let mut items = pool.stream(fails, how.to_string()).wait();
        for n in 0..1000 {
            assert_eq!(items.next().unwrap().unwrap(), n);
        }
        match items.next() {
            Some(Err(Error::Task { index: 0, failure, .. })) => {
                assert!(failure.message.contains(text), "{failure}");
            }
            other => panic!("{other:?}"),
        }
        assert!(items.next().is_none() && items.next().is_none());
    }
}

#[test]
fn a_failed_producer_runs_again_if_it_may() {
    fn fails_at_first(runs: Value<u64>, out: Sender<u64>) -> Result<(), String> {
        (0..10).try_for_each(|n| out.send(n).wait()).map_err(|error| error.to_string())?;
        match runs.update(|runs| *runs += 1).wait() {
            Ok(1) => Err("once more".to_string()),
            _ => out.send(10).wait().map_err(|error| error.to_string()),
        }
    }
    let runs = Value::new(0).unwrap();
    let pool = pool(1).retries(1);
    assert_eq!(all(pool.stream(fails_at_first, runs.clone())), Vec::from_iter(0..=10));
    runs.set(0).wait().unwrap();
    let items: Vec<_> = pool.once().stream(fails_at_first, runs.clone()).wait().collect();
    assert_eq!(items.len(), 11);
    assert!(matches!(items[10], Err(Error::Task { .. })), "{:?}", items[10]);
}

#[test]
fn a_stream_composes_with_others() {
    actix::System::new().block_on(async {
        let pool = pool(2);
        let streams = (0..4).map(|_| pool.stream(count, 1000));
        let numbers = stream::select_all(streams).map(Result::unwrap);
        let sum = numbers.filter(|n| std::future::ready(n % 2 == 1)).fold(0, async |a, b| a + b);
        assert_eq!(sum.await, 4 * 250_000);
        let mut endless = pool.stream(|out: Sender<u64>| count(u64::MAX, out), ());
        let first: Vec<_> = endless.by_ref().take(5).map(Result::unwrap).collect().await;
        assert_eq!(first, [0, 1, 2, 3, 4]);
        assert_eq!(endless.next().await.unwrap().unwrap(), 5);
    });
}

#[test]
fn dropping_the_stream_stops_its_producer() {
    let (pool, ended) = (pool(1), Event::new().unwrap());
    let mut numbers = pool.stream(endless, ended.clone()).wait();
    assert_eq!(numbers.next().unwrap().unwrap(), 0);
    // A stream whose task has not started is cancelled.
    let started = Event::new().unwrap();
    drop(pool.stream(|started: Event, _out: Sender<()>| started.set().wait(), started.clone()));
    drop(numbers);
    ended.wait_set().wait().unwrap();
    // A producer that sends nothing learns it, too.
    let idle = |ended: Event, out: Sender<u64>| {
        out.send(0).wait().unwrap();
        wait_until("the end of the consumer", || out.is_closed());
        ended.set().wait()
    };
    ended.clear().wait().unwrap();
    let mut numbers = pool.stream(idle, ended.clone()).wait();
    assert_eq!(numbers.next().unwrap().unwrap(), 0);
    drop(numbers);
    ended.wait_set().wait().unwrap();
    assert!(!started.is_set().wait().unwrap());
    pool.stop().wait().unwrap();
}

#[test]
fn a_slow_consumer_holds_its_producer_up() {
    const BUFFER: u64 = 4 << 20;
    const ITEM: usize = 10_000;
    const ITEMS: usize = 1000;
    let fill = |out: Sender<Vec<u8>>| (0..ITEMS).try_for_each(|_| out.send(vec![7; ITEM]).wait());
    let pool = pool(1).buffer(BUFFER);
    let items = pool.stream(fill, ());
    let is_full = |queue: &fiber::stats::QueueStats| {
        queue.name.contains("streams/tasks.rs") && queue.blocked > 0
    };
    let bytes = wait_for("a full buffer", || {
        let queues = fiber::stats().unwrap().report.queues;
        queues.iter().find(|queue| is_full(queue)).map(|full| full.bytes).ok_or(queues.clone())
    });
    // Half of the buffer, and the frame that has filled it.
    assert!((BUFFER / 2..BUFFER / 2 + (512 << 10)).contains(&bytes), "{bytes} bytes are stored");
    let lengths = items.wait().map(|item| item.unwrap().len());
    assert_eq!(lengths.filter(|length| *length == ITEM).count(), ITEMS);
}

#[test]
fn an_item_that_can_not_be_encoded_is_an_error_of_its_send_alone() {
    #[derive(Deserialize)]
    struct Picky(u32);

    impl Serialize for Picky {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            if self.0 == 1 {
                return Err(serde::ser::Error::custom("not this one"));
            }
            self.0.serialize(serializer)
        }
    }

    let send = |out: Sender<Picky>| {
        out.send(Picky(0)).wait().unwrap();
        let error = out.send(Picky(1)).wait().unwrap_err();
        assert!(matches!(error, Error::Encode { .. }), "{error}");
        out.send(Picky(2)).wait().unwrap();
    };
    let items: Vec<_> = all(pool(1).stream(send, ())).into_iter().map(|item| item.0).collect();
    assert_eq!(items, [0, 2]);
}

#[test]
fn an_item_that_can_not_be_decoded_is_an_error_in_its_place() {
    #[derive(Debug, Serialize)]
    struct Even(u32);

    impl<'de> Deserialize<'de> for Even {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Even, D::Error> {
            let number = u32::deserialize(deserializer)?;
            if number % 2 == 0 { Ok(Even(number)) } else { Err(serde::de::Error::custom("odd")) }
        }
    }

    let send = |out: Sender<Even>| (0..4).try_for_each(|n| out.send(Even(n)).wait());
    let items: Vec<_> = pool(1).stream(send, ()).wait().collect();
    assert!(matches!(items[1], Err(Error::Decode { .. })), "{items:?}");
    let right: Vec<_> = items.into_iter().filter_map(|item| item.ok().map(|item| item.0)).collect();
    assert_eq!(right, [0, 2]);
}

#[test]
fn items_have_arrays() {
    let send = |out: Sender<(u32, Array<f64>)>| {
        for n in 0..50 {
            let array = Array::from(vec![f64::from(n); 20_000]);
            out.send((n, array)).wait()?;
        }
        fiber::Result::<()>::Ok(())
    };
    let pool = pool(1);
    for (n, item) in (0..).zip(pool.stream(send, ()).wait()) {
        let (number, array) = item.unwrap();
        assert_eq!(number, n);
        assert!(array.len() == 20_000 && array.iter().all(|x| *x == f64::from(n)));
    }
}

#[test]
fn a_task_takes_a_stream_of_its_own_pool() {
    let sums = |out: Sender<u64>| {
        let pool = Pool::current().unwrap();
        for end in [10, 100] {
            let sum: u64 = pool.stream(count, end).wait().map(Result::unwrap).sum();
            out.send(sum).wait()?;
        }
        fiber::Result::<()>::Ok(())
    };
    assert_eq!(all(pool(1).stream(sums, ())), [45, 4950]);
    let stream = |out: Sender<Stream<u64>>| {
        let pool = Pool::current().unwrap();
        (1..4).try_for_each(|end| out.send(pool.stream(count, end)).wait())?;
        // The process of a stream's owner lives until the stream is taken.
        wait_until("the end of the consumer", || out.is_closed());
        fiber::Result::<()>::Ok(())
    };
    let pool = pool(2);
    let mut streams = pool.stream(stream, ()).wait();
    for end in 1..4 {
        assert_eq!(all(streams.next().unwrap().unwrap()), Vec::from_iter(0..end));
    }
}

#[test]
fn a_stream_of_a_durable_pool_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(1).durable(fiber::Journal::at(folder.path()));
    let mut items = pool.stream(count, 3).wait();
    let error = items.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Invalid { method: "Pool::stream", .. }), "{error}");
    assert!(items.next().is_none());
}

#[test]
fn the_end_of_the_pool_is_the_last_item() {
    let pool = pool(1);
    let mut numbers = pool.stream(|out: Sender<u64>| count(u64::MAX, out), ()).wait();
    assert_eq!(numbers.next().unwrap().unwrap(), 0);
    drop(pool);
    let end = numbers.find_map(Result::err);
    assert!(matches!(end, Some(Error::PoolEnded { .. })), "{end:?}");
    assert!(numbers.next().is_none());
}
