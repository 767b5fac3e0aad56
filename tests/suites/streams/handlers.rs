//! Streams of actors' handlers.

use std::rc::Rc;

use actix::prelude::*;
use fiber::sync::Event;
use fiber::{AsyncManager, Error, Pool, RemoteAddr, Stream};
use fiber_test_support::signals::kill;
use futures_util::{StreamExt, stream};

struct Site;

impl Actor for Site {
    type Context = Context<Self>;
}

/// Asks for numbers.
#[fiber::message(Stream<u64>)]
#[derive(Clone)]
enum Count {
    To(u64),
    /// Sets the event when the producer is dropped.
    Forever(Event),
    Err,
    Panic,
    /// By `from_stream`.
    Squares(u64),
}

struct SetOnDrop(Event);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        drop(self.0.set());
    }
}

#[fiber::message(u32)]
struct ProcessId;

#[fiber::handlers]
impl Site {
    fn count(&mut self, count: Count) -> Stream<u64> {
        match count {
            Count::To(end) => Stream::new(move |out| async move {
                // It need not be `Send`.
                let end = Rc::new(end);
                for n in 0..*end {
                    out.send(n).await?;
                }
                fiber::Result::<()>::Ok(())
            }),
            Count::Forever(dropped) => {
                let dropped = SetOnDrop(dropped);
                Stream::new(|out| async move {
                    let _dropped = dropped;
                    for n in 0.. {
                        out.send(n).await.expect("a producer without a consumer is dropped");
                    }
                })
            }
            Count::Err => Stream::new(|out| async move {
                out.send(0).await.map_err(|error| error.to_string())?;
                Err::<(), _>("no more pages".to_string())
            }),
            Count::Panic => Stream::new(|out| async move {
                out.send(0).await.unwrap();
                panic!("the page is torn");
            }),
            Count::Squares(end) => Stream::from_stream(stream::iter(0..end).map(|n| n * n)),
        }
    }

    fn process_id(&mut self, _: ProcessId) -> u32 {
        std::process::id()
    }
}

fn site() -> AsyncManager<Site> {
    AsyncManager::start(|()| Site, ()).wait().unwrap()
}

fn all(stream: Stream<u64>) -> Vec<u64> {
    stream.wait().collect::<fiber::Result<_>>().unwrap()
}

#[test]
fn a_handler_answers_with_many_values() {
    let site = site();
    assert_eq!(all(site.send(Count::To(20_000)).wait().unwrap()), Vec::from_iter(0..20_000));
    assert_eq!(all(site.send(Count::To(0)).wait().unwrap()), [0; 0]);
    assert_eq!(all(site.send(Count::Squares(4)).wait().unwrap()), [0, 1, 4, 9]);
    // A stream that waits for its consumer holds up no other message.
    let dropped = Event::new().unwrap();
    let full = site.send(Count::Forever(dropped.clone())).wait().unwrap();
    let streams: Vec<_> = (0..100).map(|n| site.send(Count::To(n)).wait().unwrap()).collect();
    for (n, numbers) in (0..).zip(streams) {
        assert_eq!(all(numbers), Vec::from_iter(0..n));
    }
    assert!(!dropped.is_set().wait().unwrap());
    drop(full);
    dropped.wait_set().wait().unwrap();
}

#[test]
fn dropping_the_stream_drops_its_producer() {
    let (site, dropped) = (site(), Event::new().unwrap());
    let mut numbers = site.send(Count::Forever(dropped.clone())).wait().unwrap().wait();
    for n in 0..1000 {
        assert_eq!(numbers.next().unwrap().unwrap(), n);
    }
    drop(numbers);
    dropped.wait_set().wait().unwrap();
    // A message whose sender wants no answer has no consumer.
    dropped.clear().wait().unwrap();
    site.do_send(Count::Forever(dropped.clone()));
    dropped.wait_set().wait().unwrap();
}

#[test]
fn a_failure_of_the_producer_comes_behind_the_items() {
    let site = site();
    for (count, text) in [(Count::Err, "no more pages"), (Count::Panic, "the page is torn")] {
        let mut numbers = site.send(count).wait().unwrap().wait();
        assert_eq!(numbers.next().unwrap().unwrap(), 0);
        match numbers.next() {
            Some(Err(Error::StreamFailed { problem })) => assert!(problem.contains(text)),
            other => panic!("{other:?}"),
        }
        assert!(numbers.next().is_none());
    }
    assert_eq!(all(site.send(Count::To(3)).wait().unwrap()), [0, 1, 2], "the actor goes on");
}

#[test]
fn the_death_of_the_actors_process_is_the_last_item() {
    let site = site();
    let mut numbers = site.send(Count::Forever(Event::new().unwrap())).wait().unwrap().wait();
    assert_eq!(numbers.next().unwrap().unwrap(), 0);
    kill(site.send(ProcessId).wait().unwrap());
    let end = numbers.find_map(Result::err);
    assert!(matches!(end, Some(Error::OwnerEnded { .. })), "{end:?}");
    assert!(numbers.next().is_none());
}

#[test]
fn a_task_asks_for_a_stream_and_passes_it_on() {
    let site = site();
    let pool = Pool::new(1).unwrap();
    let ask = |site: RemoteAddr<Site>| {
        let mut numbers = site.send(Count::To(10_000)).wait().unwrap();
        let sum: u64 = (&mut numbers).into_iter().take(100).map(Result::unwrap).sum();
        (sum, numbers)
    };
    let (sum, numbers) = pool.apply(ask, site.addr()).wait().unwrap();
    assert_eq!((sum, all(numbers)), (4950, Vec::from_iter(100..10_000)));
}

#[test]
fn an_exported_actor_answers_with_a_stream() {
    actix::System::new().block_on(async {
        let site = RemoteAddr::export(Site.start()).unwrap();
        let sum = |site: RemoteAddr<Site>| {
            let numbers = site.send(Count::To(1000)).wait().unwrap();
            numbers.wait().map(Result::unwrap).sum::<u64>()
        };
        assert_eq!(fiber::Process::spawn(sum, site).await.unwrap(), 499_500);
        // An actor of this process, without fiber in between.
        let numbers = Site.start().send(Count::To(10)).await.unwrap();
        assert_eq!(numbers.map(Result::unwrap).collect::<Vec<_>>().await, Vec::from_iter(0..10));
    });
}

#[test]
fn a_thread_without_actors_makes_no_stream() {
    let mut numbers = Stream::<u64>::new(|_| async {}).wait();
    let error = numbers.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Invalid { method: "Stream::new", .. }), "{error}");
    assert!(numbers.next().is_none());
}
