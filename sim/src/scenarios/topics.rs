//! Topics, while processes die and links break.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use fiber::supervisor::Backoff;
use fiber::topic::{Slow, Subscription, Topic};
use fiber::{AsyncManager, Error, Process, Queue, Reply};
use fiber_world::{count, counted, is_dead, nap};
use serde::{Deserialize, Serialize};

use super::Outcome;
use super::actors::{Numbered, Ordered};
use crate::Ground;

/// Longer than a link is made again.
const SETTLED: Duration = Duration::from_secs(60);
const NAME: &str = "numbers";
/// The sender of the message that is published when the storm is over, and retained.
const LAST: u64 = 1 << 20;

/// How a subscriber reads.
#[derive(Clone, Serialize, Deserialize)]
struct Reader {
    kind: u8,
    buffer: usize,
    /// Its pause before a message, and how often it makes one, of 256 times.
    pause: Duration,
    pauses: u8,
    seed: u64,
    is_calm: bool,
}

/// The messages that a subscriber has seen.
#[derive(Default, Debug, Serialize, Deserialize)]
struct Seen {
    wrong: Vec<String>,
    /// The messages of each subscription that did not come although later ones of their publishers
    /// have come, and how many it says to have missed.
    gaps: Vec<(Vec<u64>, u64)>,
}

/// Publishes numbers until the storm is over.
fn publish(
    topic: Topic<Numbered>,
    sender: u64,
    numbers: u64,
    window: usize,
    is_calm: bool,
) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    let mut settle = |message: u64, reply: Reply<()>| match reply.wait() {
        Ok(()) => drop(count("published", message)),
        Err(error) if is_calm => wrong.push(format!("{message} was not published: {error}")),
        Err(_) => {}
    };
    let mut pending = VecDeque::new();
    for number in 0..numbers {
        if is_dead() {
            break;
        }
        if pending.len() == window {
            let (message, reply) = pending.pop_front().expect("it is full");
            settle(message, reply);
        }
        let message = Numbered { sender, number };
        pending.push_back((message.key(), topic.publish(message)));
        nap(Duration::from_millis(30));
    }
    pending.into_iter().for_each(|(message, reply)| settle(message, reply));
    Ok(wrong)
}

impl Reader {
    fn slow(&self) -> Slow {
        match self.kind {
            0 => Slow::Wait,
            1 => Slow::KeepNewest(self.buffer),
            _ => Slow::End,
        }
    }

    /// Reads until the last message has come, or the topic's process is dead. Subscribes again when
    /// a subscription has ended.
    fn read(&self, topic: &Topic<Numbered>, subscriber: u64) -> Seen {
        let topic = topic.buffer(self.buffer);
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut seen = Seen::default();
        while !is_dead() {
            match topic.subscribe(self.slow()).wait() {
                Ok(mut subscription) => {
                    count("subscribed", subscriber);
                    if self.read_all(&mut subscription, &mut rng, &mut seen) {
                        break;
                    }
                }
                Err(error) => {
                    if self.is_calm {
                        seen.wrong.push(format!("there is no subscription: {error}"));
                    }
                    if counted("owner is dead", 0) > 0 {
                        break;
                    }
                    nap(Duration::from_millis(100));
                }
            }
        }
        seen
    }

    /// Returns whether the last message has come.
    fn read_all(
        &self,
        subscription: &mut Subscription<Numbered>,
        rng: &mut fastrand::Rng,
        seen: &mut Seen,
    ) -> bool {
        let mut next = HashMap::<u64, u64>::new();
        let mut gaps = Vec::new();
        let is_last = loop {
            if rng.u8(..) < self.pauses {
                nap(self.pause);
            }
            match subscription.into_iter().next().expect("an error is the end") {
                Ok(Numbered { sender: LAST, .. }) => break true,
                Ok(message) => {
                    let Numbered { sender, number } = message;
                    let next = next.entry(sender).or_insert(number);
                    if number < *next {
                        seen.wrong.push(format!("{number} of {sender} comes after {next}"));
                    }
                    gaps.extend((*next..number).map(|number| Numbered { sender, number }.key()));
                    *next = number + 1;
                }
                Err(Error::TooSlow { waiting, .. }) => {
                    // It may have read some since the topic has ended it.
                    if self.kind != 2 {
                        seen.wrong.push(format!("it has ended with {waiting} messages"));
                    }
                    break false;
                }
                Err(error) => {
                    if self.is_calm {
                        seen.wrong.push(format!("a subscription has ended: {error}"));
                    }
                    break false;
                }
            }
        };
        seen.gaps.push((gaps, subscription.missed()));
        is_last
    }
}

/// Owns a topic until the end.
fn own(topics: Queue<Topic<Numbered>>) -> Result<(), Error> {
    topics.put(Topic::new()?).wait()?;
    while counted("over", 0) == 0 && !is_dead() {
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// The messages of each publisher come in order. One that is published does not come to a
/// subscription only if that has an error or a count. All waits end.
pub(super) fn topics(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let (publishers, subscribers) = (ground.processes() as u64, ground.processes() as u64);
        let numbers = ground.items(60);
        // Whether a storm is calm is drawn when it begins, which processes have to know before.
        let is_calm = ground.happens(64);
        let (topic, owner) = match ground.rng.u8(..4) {
            0 => (Topic::new()?, None),
            1 => {
                let topics = Queue::new()?;
                let owner = Process::builder().try_spawn(own, topics.clone());
                (topics.get().wait()?, Some(owner))
            }
            _ => (Topic::named(NAME)?, None),
        };
        let builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
        let actor = builder.backoff(Backoff::none()).start(Ordered::default, ()).wait()?;
        let delivery = topic.deliver_to(&actor.recipient(), Slow::Wait).wait()?;
        let read = |topic: Topic<Numbered>, subscriber: u64, readers: Vec<Reader>| {
            let start = |reader: Reader| {
                let topic = topic.clone();
                let read = move || reader.read(&topic, subscriber);
                std::thread::spawn(fiber::simulation::in_this_session(read))
            };
            let threads: Vec<_> = readers.into_iter().map(start).collect();
            let seen = threads.into_iter().map(std::thread::JoinHandle::join);
            Ok::<_, Error>(seen.filter_map(Result::ok).collect::<Vec<Seen>>())
        };
        let subscribers: Vec<_> = (0..subscribers)
            .map(|subscriber| {
                let readers: Vec<_> = (0..ground.rng.usize(1..4))
                    .map(|_| Reader {
                        kind: ground.rng.u8(..3),
                        buffer: ground.rng.usize(1..9),
                        pause: Duration::from_millis(ground.rng.u64(1..400)),
                        pauses: ground.rng.u8(..64),
                        seed: ground.rng.u64(..),
                        is_calm,
                    })
                    .collect();
                let args = (topic.clone(), subscriber, readers);
                Process::builder().try_spawn(read, args)
            })
            .collect();
        for subscriber in 0..subscribers.len() as u64 {
            while counted("subscribed", subscriber) == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let publishers: Vec<_> = (0..publishers)
            .map(|sender| {
                let window = ground.rng.usize(1..20);
                let args = (topic.clone(), sender, numbers, window, is_calm);
                Process::builder().try_spawn(publish, args)
            })
            .collect();
        if !is_calm {
            let storm = ground.storm();
            ground.wait_for_calm(storm);
            std::thread::sleep(SETTLED);
        }
        for publisher in publishers {
            match publisher.wait() {
                Ok(wrong) => assert!(wrong.is_empty(), "{wrong:?}"),
                Err(error) => assert!(!is_calm, "{error}"),
            }
        }
        fiber_world::note(format_args!("all publishers have ended"));
        if owner.as_ref().is_some_and(|owner| !owner.is_alive()) {
            count("owner is dead", 0);
        } else {
            topic.publish_retained(Numbered { sender: LAST, number: 0 }).wait()?;
        }
        for subscriber in subscribers {
            let Ok(all) = subscriber.wait() else { continue };
            for seen in all {
                assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
                for (gaps, missed) in seen.gaps {
                    let lost = gaps.iter().filter(|message| counted("published", **message) > 0);
                    let lost = lost.count() as u64;
                    assert!(lost <= missed, "{lost} messages are lost: it says {missed}");
                }
            }
        }
        assert!(fiber_world::all_counted("out of order").is_empty());
        drop(delivery);
        actor.stop().wait()?;
        count("over", 0);
        if let Some(owner) = owner {
            let _ = owner.wait();
            return Ok(());
        }
        topic.clear_retained().wait()?;
        drop(topic);
        // Nobody uses its name, which is free for others then.
        while let Err(error) = Topic::<u64>::named(NAME)?.publish(1).wait() {
            assert!(matches!(error, Error::OtherType { .. }), "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })
}
