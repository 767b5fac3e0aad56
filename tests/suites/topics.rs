//! Topics between processes.

mod deliveries;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fiber::stats::NameKind;
use fiber::sync::{Barrier, Event};
use fiber::topic::{Slow, Subscription, Topic};
use fiber::{Array, Error, Process, Queue};
use fiber_test_support::wait::{wait_for, wait_until};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The publisher of a message, and its number there.
type Numbered = (u32, u32);

/// Sleeps until the process is killed.
fn hang() {
    Event::new().unwrap().wait_set().wait().unwrap();
}

fn take<M>(subscription: &mut Subscription<M>, count: usize) -> Vec<M>
where
    M: Serialize + serde::de::DeserializeOwned,
{
    subscription.into_iter().take(count).map(Result::unwrap).collect()
}

/// Waits until an attempt succeeds.
fn succeed(attempt: impl Fn() -> fiber::Result<()>) {
    wait_for("a success", attempt);
}

#[test]
fn all_subscriptions_of_all_processes_get_all_messages_in_one_order() {
    const PUBLISHERS: u32 = 2;
    const MESSAGES: u32 = 300;
    const COUNT: usize = (PUBLISHERS * MESSAGES) as usize;
    for topic in [Topic::<Numbered>::new().unwrap(), Topic::named("order").unwrap()] {
        let begin = Barrier::new(5).unwrap();
        let subscribe = |topic: Topic<Numbered>, begin: Barrier| {
            let subscriptions: Vec<_> = [Slow::Wait, Slow::Wait, Slow::KeepNewest(COUNT)]
                .map(|slow| topic.buffer(7).subscribe(slow))
                .into_iter()
                .map(|reply| reply.wait().unwrap())
                .collect();
            begin.wait_all().wait().unwrap();
            let reads = subscriptions.into_iter().map(|mut subscription| {
                thread::spawn(move || {
                    let all = take(&mut subscription, COUNT);
                    assert_eq!(subscription.missed(), 0);
                    all
                })
            });
            let mut all: Vec<_> = reads
                .collect::<Vec<_>>()
                .into_iter()
                .map(thread::JoinHandle::join)
                .map(Result::unwrap)
                .collect();
            all.dedup();
            assert_eq!(all.len(), 1);
            all.remove(0)
        };
        let publish = |publisher: u32, topic: Topic<Numbered>, begin: Barrier| {
            begin.wait_all().wait().unwrap();
            let sent: Vec<_> = (0..MESSAGES).map(|n| topic.publish((publisher, n))).collect();
            sent.into_iter().for_each(|reply| reply.wait().unwrap());
        };
        let subscribers: Vec<_> =
            (0..2).map(|_| Process::spawn(subscribe, (topic.clone(), begin.clone()))).collect();
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|n| Process::spawn(publish, (n, topic.clone(), begin.clone())))
            .collect();
        let here = topic.buffer(1).subscribe(Slow::Wait).wait().unwrap();
        begin.wait_all().wait().unwrap();
        let seen: Vec<Numbered> = here.wait().take(COUNT).map(Result::unwrap).collect();
        for subscriber in subscribers {
            assert_eq!(subscriber.wait().unwrap(), seen);
        }
        publishers.into_iter().for_each(|publisher| publisher.wait().unwrap());
        for publisher in 0..PUBLISHERS {
            let of_one = seen.iter().filter(|(by, _)| *by == publisher).map(|(_, n)| *n);
            assert!(of_one.eq(0..MESSAGES));
        }
    }
}

#[test]
fn publishers_wait_for_a_slow_subscription() {
    let topic = Topic::new().unwrap();
    let mut subscription = topic.buffer(2).subscribe(Slow::Wait).wait().unwrap();
    static PUBLISHED: AtomicU64 = AtomicU64::new(0);
    let publisher = thread::spawn(move || {
        for number in 0_u64..200 {
            topic.publish(number).wait().unwrap();
            PUBLISHED.fetch_add(1, Ordering::SeqCst);
        }
    });
    for number in 0..200 {
        // Two are in the buffer, and one was read whose reader had not said so.
        assert!(PUBLISHED.load(Ordering::SeqCst) <= number + 3);
        assert_eq!(take(&mut subscription, 1), [number]);
    }
    publisher.join().unwrap();
}

#[test]
fn a_subscription_that_keeps_the_newest_counts_what_it_misses() {
    let (topic, ready, go) = (Topic::new().unwrap(), Queue::new().unwrap(), Queue::new().unwrap());
    let child = |topic: Topic<u32>, ready: Queue<()>, go: Queue<()>| {
        let mut subscription = topic.subscribe(Slow::KeepNewest(3)).wait().unwrap();
        ready.put(()).wait().unwrap();
        // It comes behind the messages.
        go.get().wait().unwrap();
        let first = (take(&mut subscription, 3), subscription.missed());
        ready.put(()).wait().unwrap();
        let mut rest = Vec::new();
        while rest.last() != Some(&5499) {
            rest.extend(take(&mut subscription, 1));
        }
        assert!(rest.is_sorted());
        // None is lost that it does not count, also of those that have waited in the topic.
        (first, rest.len() as u64 + subscription.missed())
    };
    let child = Process::spawn(child, (topic.clone(), ready.clone(), go.clone()));
    ready.get().wait().unwrap();
    (0..500).for_each(|number| topic.publish(number).wait().unwrap());
    go.put(()).wait().unwrap();
    ready.get().wait().unwrap();
    (500..5500).for_each(|number| topic.publish(number).wait().unwrap());
    assert_eq!(child.wait().unwrap(), ((vec![497, 498, 499], 497), 5500 - 3));
}

#[test]
fn a_slow_subscription_that_shall_end_says_how_many_messages_waited() {
    let (topic, ready, go) = (Topic::new().unwrap(), Queue::new().unwrap(), Queue::new().unwrap());
    let child = |topic: Topic<u32>, ready: Queue<()>, go: Queue<()>| {
        let subscription = topic.buffer(10).subscribe(Slow::End).wait().unwrap();
        ready.put(()).wait().unwrap();
        go.get().wait().unwrap();
        let mut messages = subscription.wait();
        let mut seen = Vec::new();
        loop {
            match messages.next().unwrap() {
                Ok(message) => seen.push(message),
                Err(Error::TooSlow { topic, waiting }) => {
                    assert!(topic.contains("topics.rs"), "{topic}");
                    assert!(messages.next().is_none());
                    return (seen, waiting);
                }
                Err(other) => panic!("{other}"),
            }
        }
    };
    let child = Process::spawn(child, (topic.clone(), ready.clone(), go.clone()));
    ready.get().wait().unwrap();
    (0..100).for_each(|number| topic.publish(number).wait().unwrap());
    go.put(()).wait().unwrap();
    let (seen, waiting) = child.wait().unwrap();
    assert!((10..=15).contains(&seen.len()), "{seen:?}");
    assert_eq!((seen.len(), &seen), (waiting, &(0..seen.len() as u32).collect()));
}

#[test]
fn newcomers_get_the_retained_message_first() {
    let topic = Topic::<u32>::new().unwrap();
    topic.publish_retained(1).wait().unwrap();
    topic.publish_retained(2).wait().unwrap();
    topic.publish(3).wait().unwrap();
    let child = |topic: Topic<u32>| {
        let mut subscription = topic.subscribe(Slow::KeepNewest(5)).wait().unwrap();
        let retained = take(&mut subscription, 1);
        topic.publish(4).wait().unwrap();
        (retained, take(&mut subscription, 1))
    };
    assert_eq!(Process::spawn(child, topic.clone()).wait().unwrap(), (vec![2], vec![4]));
    topic.clear_retained().wait().unwrap();
    let mut late = topic.subscribe(Slow::Wait).wait().unwrap();
    topic.publish(5).wait().unwrap();
    assert_eq!(take(&mut late, 1), [5]);
}

#[test]
fn a_topic_has_one_type_of_message_until_it_is_forgotten() {
    let numbers = Topic::<u32>::named("one-type").unwrap();
    numbers.publish_retained(7).wait().unwrap();
    let text = || Topic::<String>::named("one-type").unwrap();
    let errors = [
        text().publish("seven".into()).wait().unwrap_err(),
        text().subscribe(Slow::Wait).wait().unwrap_err(),
        text().clear_retained().wait().unwrap_err(),
    ];
    for error in errors {
        let said = error.to_string();
        assert!(matches!(error, Error::OtherType { .. }), "{said}");
        let parts = ["topic `one-type`", "`u32`", "alloc::string::String"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let elsewhere = || {
        let topic = Topic::<String>::named("one-type").unwrap();
        topic.publish("seven".into()).wait().unwrap_err().to_string()
    };
    let error = Process::spawn(elsewhere, ()).wait().unwrap();
    assert!(error.contains("`u32`"), "{error}");
    // The retained message stays without any handle, and the name is free without it.
    drop(numbers);
    let numbers = Topic::<u32>::named("one-type").unwrap();
    assert_eq!(take(&mut numbers.subscribe(Slow::Wait).wait().unwrap(), 1), [7]);
    numbers.clear_retained().wait().unwrap();
    drop(numbers);
    succeed(|| text().publish("seven".into()).wait());
}

#[test]
fn what_a_publisher_that_has_died_has_published_is_delivered() {
    let topic = Topic::named("last-words").unwrap();
    let mut subscription = topic.buffer(3).subscribe(Slow::Wait).wait().unwrap();
    let arrived = Event::new().unwrap();
    let child = |topic: Topic<u32>, arrived: Event| {
        let sent: Vec<_> = (0..20).map(|number| topic.publish(number)).collect();
        arrived.set().wait().unwrap();
        drop(sent);
        hang();
    };
    let child = Process::spawn(child, (topic, arrived.clone()));
    arrived.wait_set().wait().unwrap();
    child.kill();
    let _ = child.join().wait();
    assert_eq!(take(&mut subscription, 20), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_topic_ends_with_its_process() {
    let (topics, go) = (Queue::new().unwrap(), Queue::new().unwrap());
    let child = |topics: Queue<Topic<u32>>, go: Queue<()>| {
        let topic = Topic::new().unwrap();
        topics.put(topic.clone()).wait().unwrap();
        go.get().wait().unwrap();
        (1..=3).for_each(|number| topic.publish(number).wait().unwrap());
        hang();
    };
    let child = Process::spawn(child, (topics.clone(), go.clone()));
    let topic = topics.get().wait().unwrap();
    let mut subscription = topic.subscribe(Slow::Wait).wait().unwrap();
    go.put(()).wait().unwrap();
    assert_eq!(take(&mut subscription, 3), [1, 2, 3]);
    child.kill();
    let mut rest = subscription.wait();
    let error = rest.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::OwnerEnded { .. }), "{error}");
    assert!(rest.next().is_none());
    let error = topic.publish(4).wait().unwrap_err();
    assert!(matches!(error, Error::OwnerEnded { .. }), "{error}");
    assert!(topic.subscribe(Slow::Wait).wait().is_err());
}

#[test]
fn arrays_go_to_all_processes() {
    let (topic, ready) = (Topic::<(String, Array<f64>)>::new().unwrap(), Queue::new().unwrap());
    let child = |topic: Topic<(String, Array<f64>)>, ready: Queue<()>| {
        let subscribe = |_| topic.subscribe(Slow::Wait).wait().unwrap();
        let subscriptions: Vec<_> = (0..2).map(subscribe).collect();
        ready.put(()).wait().unwrap();
        let sum = |mut subscription| {
            let all: Vec<(String, Array<f64>)> = take(&mut subscription, 5);
            all.iter().map(|(name, array)| name.len() as f64 + array.iter().sum::<f64>()).sum()
        };
        subscriptions.into_iter().map(sum).collect::<Vec<f64>>()
    };
    let start = |_| Process::spawn(child, (topic.clone(), ready.clone()));
    let children: Vec<_> = (0..2).map(start).collect();
    children.iter().for_each(|_| ready.get().wait().unwrap());
    let array = Array::from(vec![1.0; 200_000]);
    for _ in 0..5 {
        topic.publish(("abc".into(), array.clone())).wait().unwrap();
    }
    for child in children {
        assert_eq!(child.wait().unwrap(), [1_000_015.0; 2]);
    }
}

/// A message that serde can't carry at all, or only away.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crooked {
    Straight,
    Unwritable,
    Unreadable,
}

impl Serialize for Crooked {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Crooked::Straight => serializer.serialize_u8(0),
            Crooked::Unwritable => Err(serde::ser::Error::custom("it is crooked")),
            Crooked::Unreadable => serializer.serialize_str("crooked"),
        }
    }
}

impl<'de> Deserialize<'de> for Crooked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Crooked, D::Error> {
        u8::deserialize(deserializer).map(|_| Crooked::Straight)
    }
}

#[test]
fn messages_that_cannot_travel_are_errors_of_those_who_meet_them() {
    let topic = Topic::new().unwrap();
    let mut messages = topic.subscribe(Slow::Wait).wait().unwrap().wait();
    let error = topic.publish(Crooked::Unwritable).wait().unwrap_err();
    assert!(matches!(error, Error::Encode { .. }), "{error}");
    topic.publish(Crooked::Unreadable).wait().unwrap();
    topic.publish(Crooked::Straight).wait().unwrap();
    let error = messages.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert_eq!(messages.next().unwrap().unwrap(), Crooked::Straight);
}

#[test]
fn subscriptions_need_room_for_a_message() {
    let topic = Topic::<u32>::new().unwrap();
    let errors = [
        topic.buffer(0).subscribe(Slow::Wait).wait().unwrap_err(),
        topic.buffer(0).subscribe(Slow::End).wait().unwrap_err(),
        topic.subscribe(Slow::KeepNewest(0)).wait().unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    let _all = topic.buffer(0).subscribe(Slow::KeepNewest(usize::MAX)).wait().unwrap();
}

#[test]
fn a_topic_lives_as_long_as_a_process_has_a_subscription() {
    let topics = Queue::new().unwrap();
    topics.put(Topic::<u32>::new().unwrap()).wait().unwrap();
    let forward = |topics: Queue<Topic<u32>>| {
        let topic = topics.get().wait().unwrap();
        let mut subscription = topic.subscribe(Slow::Wait).wait().unwrap();
        topics.put(topic).wait().unwrap();
        take(&mut subscription, 2)
    };
    let child = Process::spawn(forward, topics.clone());
    // The child gives it back, or this process takes it first.
    let topic = topics.get().wait().unwrap();
    topics.put(topic.clone()).wait().unwrap();
    wait_until("the child's start", || child.is_alive());
    let mut own = topic.subscribe(Slow::KeepNewest(1)).wait().unwrap();
    let publisher = thread::spawn(move || {
        while topic.publish(7).wait().is_ok() && !PUBLISHER_MAY_END.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    });
    static PUBLISHER_MAY_END: std::sync::atomic::AtomicBool =
        std::sync::atomic::AtomicBool::new(false);
    assert_eq!(child.wait().unwrap(), [7, 7]);
    PUBLISHER_MAY_END.store(true, Ordering::SeqCst);
    publisher.join().unwrap();
    assert_eq!(take(&mut own, 1), [7]);
}

#[test]
fn statistics_list_the_topics_that_have_names() {
    let topic = Topic::<u64>::named("listed").unwrap();
    let subscriptions: Vec<_> =
        (0..2).map(|_| topic.subscribe(Slow::Wait).wait().unwrap()).collect();
    let listed = || {
        let names = fiber::stats().unwrap().report.names;
        names.into_iter().find(|one| one.kind == NameKind::Topic && one.name == "listed")
    };
    let found = listed().unwrap();
    assert_eq!((found.of.as_str(), found.members), ("u64", 2));
    drop((topic, subscriptions));
    wait_until("the end of the topic", || listed().is_none());
}
