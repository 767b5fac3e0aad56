//! Managed actors.

use std::time::Duration;

use actix::prelude::*;
use fiber::manager::{Full, Snapshot, Snapshots};
use fiber::simulation::in_this_session;
use fiber::supervisor::Backoff;
use fiber::{AsyncManager, Error, RemoteAddr};
use fiber_world::{count, counted, nap};
use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::Ground;

pub(super) struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
pub(super) struct Say(pub(super) u64);

impl Handler<Say> for Echo {
    type Result = ResponseFuture<u64>;

    /// Answers every third message after the next one.
    fn handle(&mut self, Say(number): Say, _: &mut Context<Self>) -> Self::Result {
        Box::pin(async move {
            if number.is_multiple_of(3) {
                actix::clock::sleep(Duration::from_millis(20)).await;
            }
            number
        })
    }
}

/// Every call of an actor ends, and those with `resend` are answered. Where nothing goes wrong, all
/// are.
pub(super) fn managers(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let start = |number| {
            let builder = AsyncManager::builder().name(format!("echo-{number}"));
            let builder =
                builder.intensity(u32::MAX, Duration::from_secs(1)).backoff(Backoff::none());
            builder.start(|| Echo, ()).wait()
        };
        let managers: Vec<_> = (0..ground.processes()).map(start).collect::<Result<_, _>>()?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let limit = Duration::from_secs(300);
        let addrs: Vec<_> = managers.iter().map(|manager| manager.addr().timeout(limit)).collect();
        let count = ground.items(100);
        let certain: Vec<_> = (0..count)
            .map(|number| {
                nap(Duration::from_millis(10));
                addrs[number as usize % addrs.len()].clone().resend().send(Say(number))
            })
            .collect();
        for number in 0..count {
            match addrs[number as usize % addrs.len()].send(Say(number)).wait() {
                Ok(answer) => assert_eq!(answer, number),
                Err(Error::ActorStopped { .. }) if !is_calm => {}
                Err(other) => return Err(other.into()),
            }
        }
        for (call, number) in certain.into_iter().zip(0..) {
            assert_eq!(call.wait()?, number);
        }
        ground.wait_for_calm(storm);
        for manager in managers {
            manager.stop().wait()?;
        }
        Ok(())
    })
}

/// Is answered after this time.
#[fiber::message]
struct Wait(Duration);

impl Handler<Wait> for Echo {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Wait(time): Wait, _: &mut Context<Self>) -> Self::Result {
        Box::pin(actix::clock::sleep(time))
    }
}

/// Calls with time limits of their own, in any order, end with their answers or at their limits.
pub(super) fn timeouts(ground: &mut Ground) -> Outcome {
    /// The time of messages on their way, and of threads.
    const LATE: Duration = Duration::from_millis(500);
    ground.session(|ground| {
        let manager = AsyncManager::<Echo>::start(|| Echo, ()).wait()?;
        assert_eq!(manager.send(Say(1)).wait()?, 1);
        let calls: Vec<_> = (0..ground.items(20))
            .map(|_| {
                let mut draw = || {
                    let most = 200 << ground.rng.u8(..10);
                    Duration::from_millis(ground.rng.u64(100..most))
                };
                let (time, limit) = (draw(), draw());
                nap(Duration::from_millis(500));
                let call = manager.addr().timeout(limit).send(Wait(time));
                let begun = fiber_world::now();
                std::thread::spawn(move || {
                    let result = call.wait();
                    let took = fiber_world::now() - begun;
                    let at = time.min(limit);
                    assert!(
                        took + LATE >= at && took <= at + LATE,
                        "{took:?} for {time:?} within {limit:?}"
                    );
                    let is_right = match &result {
                        Ok(()) => time < limit + LATE,
                        Err(Error::TimedOut { .. }) => limit < time + LATE,
                        Err(_) => false,
                    };
                    assert!(is_right, "{result:?} for {time:?} within {limit:?}");
                })
            })
            .collect();
        for call in calls {
            if let Err(panic) = call.join() {
                std::panic::resume_unwind(panic);
            }
        }
        manager.stop().wait()?;
        Ok(())
    })
}

/// Remembers the last number of each sender.
#[derive(Default)]
pub(super) struct Ordered {
    last: Vec<(u64, u64)>,
}

impl Actor for Ordered {
    type Context = Context<Self>;
}

#[fiber::message]
pub(super) struct Numbered {
    pub(super) sender: u64,
    pub(super) number: u64,
}

impl Numbered {
    /// Returns the key of its count.
    pub(super) fn key(&self) -> u64 {
        self.sender << 32 | self.number
    }
}

#[fiber::handlers]
impl Ordered {
    fn numbered(&mut self, message: Numbered) {
        let Numbered { sender, number } = message;
        match self.last.iter_mut().find(|(known, _)| *known == sender) {
            Some((_, last)) => {
                // One that is sent again may come again. The actor's own panic would restart it.
                if *last >= number && counted("handled", message.key()) == 0 {
                    count("out of order", sender);
                }
                *last = number;
            }
            None => self.last.push((sender, number)),
        }
        if count("handled", message.key()) == 1 && number.is_multiple_of(40) {
            panic!("the actor starts again");
        }
    }
}

/// A thread that sends numbers to an actor.
#[derive(Serialize, Deserialize)]
pub(super) struct Sender {
    pub(super) number: u64,
    pub(super) addr: RemoteAddr<Ordered>,
    /// Whether it sends calls that are sent again, or messages without an answer.
    pub(super) resends: bool,
    /// How often it sends the next one at once, of 256 times.
    pub(super) haste: u8,
}

impl Sender {
    pub(super) fn send(self, count: u64, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let addr = if self.resends { self.addr.resend() } else { self.addr };
        let calls: Vec<_> = (0..count)
            .filter_map(|number| {
                if rng.u8(..) >= self.haste {
                    nap(Duration::from_millis(20));
                }
                let message = Numbered { sender: self.number, number };
                if self.resends {
                    return Some((number, addr.send(message)));
                }
                addr.do_send(message);
                None
            })
            .collect();
        for (number, call) in calls {
            match call.wait() {
                Ok(()) => {}
                // Its handler panics.
                Err(Error::Call { .. }) if number.is_multiple_of(40) => {}
                Err(other) => panic!("call {number} of sender {}: {other}", self.number),
            }
        }
    }
}

/// The messages of one sender to one actor arrive in order, while the actor and its process
/// restart, and none twice unless it is sent again. Where nothing goes wrong, all arrive. They may
/// wait for places in the mailbox.
pub(super) fn order(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let mut builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
        if ground.rng.bool() {
            builder = builder.mailbox(ground.rng.usize(1..5)).when_full(Full::Wait);
        }
        let manager = builder.backoff(Backoff::none()).start(Ordered::default, ()).wait()?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let (count, senders) = (ground.items(100), ground.processes() as u64);
        let threads: Vec<_> = (0..senders)
            .map(|number| {
                let (resends, haste) = (number % 2 == 0, ground.rng.u8(..));
                let sender = Sender { number, addr: manager.addr(), resends, haste };
                let seed = ground.rng.u64(..);
                std::thread::spawn(in_this_session(move || sender.send(count, seed)))
            })
            .collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        ground.wait_for_calm(storm);
        // Behind all messages.
        manager.addr().resend().send(Numbered { sender: senders, number: 1 }).wait()?;
        for sender in 0..senders {
            assert_eq!(counted("out of order", sender), 0, "of sender {sender}");
            for number in 0..count {
                let times = counted("handled", Numbered { sender, number }.key());
                let may_be_lost = sender % 2 == 1 && !is_calm;
                let may_come_again = sender % 2 == 0 && !is_calm;
                assert!(
                    (times > 0 || may_be_lost) && (times <= 1 || may_come_again),
                    "message {number} of sender {sender} came {times} times"
                );
            }
        }
        manager.stop().wait()?;
        Ok(())
    })
}

/// Remembers all numbers.
struct Diary(Vec<u64>);

impl Diary {
    fn new() -> Diary {
        count("incarnations", 0);
        Diary(Vec::new())
    }
}

impl Actor for Diary {
    type Context = Context<Self>;
}

impl Snapshot for Diary {
    type State = Vec<u64>;

    fn snapshot(&self) -> Vec<u64> {
        self.0.clone()
    }

    fn restore(&mut self, state: Vec<u64>) {
        let length = state.len() as u64;
        count("restored with", length);
        if (length + 1..1000).any(|longer| counted("restored with", longer) > 0) {
            count("went back", 0);
        }
        self.0 = state;
    }
}

#[fiber::message(Vec<u64>)]
struct Read;

#[fiber::handlers]
impl Diary {
    fn say(&mut self, Say(number): Say) -> u64 {
        self.0.push(number);
        number
    }

    fn read(&mut self, _: Read) -> Vec<u64> {
        self.0.clone()
    }
}

/// An actor continues from its last snapshot: each death loses at most the messages after it, and none
/// that was answered if answers wait for snapshots.
pub(super) fn snapshots(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        // 0: before answers.
        let interval = ground.rng.u64(0..6);
        let when = match interval {
            0 => Snapshots::before_answers(),
            messages => Snapshots::every_messages(messages),
        };
        let builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
        let builder = builder.backoff(Backoff::none());
        let builder = builder.snapshots(when);
        let manager = builder.start(Diary::new, ()).wait()?;
        let storm = ground.storm();
        let addr = manager.addr().resend();
        let messages = ground.items(100);
        for number in 0..messages {
            assert_eq!(addr.send(Say(number)).wait()?, number);
            nap(Duration::from_millis(100));
        }
        ground.wait_for_calm(storm);
        let mut diary = addr.send(Read).wait()?;
        assert!(diary.is_sorted(), "messages are in disorder: {diary:?}");
        assert_eq!(counted("went back", 0), 0, "an actor has a snapshot before its last one");
        diary.dedup();
        let lost = messages - diary.len() as u64;
        // A snapshot leaves after the answer of its message.
        let deaths = counted("incarnations", 0) - 1;
        let most = if interval == 0 { 0 } else { deaths * (interval + 1) };
        assert!(lost <= most, "{lost} are lost in {deaths} deaths, with snapshots each {interval}");
        manager.stop().wait()?;
        Ok(())
    })
}
