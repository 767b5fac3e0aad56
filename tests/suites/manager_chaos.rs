//! Calls to managed actors whose processes are killed at random: every call ends, and all calls of
//! addresses with `resend` are answered.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix::prelude::*;
use fiber::{AsyncManager, Error, RemoteAddr};
use fiber_test_support::soak;
use rand::{Rng, SeedableRng};

/// The number of calls, unless `make soak` asks for more.
const CALLS: u64 = 400;
/// The time limit of each call.
const LIMIT: Duration = Duration::from_secs(120);

struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Say(u64);

impl Handler<Say> for Echo {
    type Result = ResponseFuture<u64>;

    /// Answers every third message after the next one.
    fn handle(&mut self, Say(number): Say, _: &mut Context<Self>) -> Self::Result {
        Box::pin(async move {
            if number.is_multiple_of(3) {
                actix::clock::sleep(Duration::from_micros(200)).await;
            }
            number
        })
    }
}

/// Asks another managed actor.
#[fiber::message(Result<u64, String>)]
struct Relay(RemoteAddr<Echo>, u64);

impl Handler<Relay> for Echo {
    type Result = ResponseFuture<Result<u64, String>>;

    fn handle(&mut self, relay: Relay, _: &mut Context<Self>) -> Self::Result {
        Box::pin(async move { relay.0.send(Say(relay.1)).await.map_err(|error| error.to_string()) })
    }
}

/// Kills actors until `end` is set, each a random time after the last kill, and after an answer:
/// on a busy machine, actors that are killed at once would never begin.
fn kill_at_random(managers: &[AsyncManager<Echo>], answers: &AtomicU64, end: &AtomicBool) {
    let mut random = rand::rngs::SmallRng::seed_from_u64(5);
    let mut seen = 0;
    while !end.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(random.random_range(5..40)));
        let count = answers.load(Ordering::Acquire);
        if std::mem::replace(&mut seen, count) == count {
            continue;
        }
        managers[random.random_range(0..managers.len())].kill_process();
    }
}

#[test]
fn every_call_ends_while_actors_are_killed() {
    let start = |number| {
        let builder = AsyncManager::builder().name(format!("echo-{number}"));
        let builder = builder
            .intensity(u32::MAX, Duration::from_secs(1))
            .backoff(fiber::supervisor::Backoff::none());
        builder.start(|| Echo, ()).wait().unwrap()
    };
    let managers: Vec<_> = (0..3).map(start).collect();
    let addrs: Vec<_> = managers.iter().map(|manager| manager.addr().timeout(LIMIT)).collect();
    let (answers, end) = (AtomicU64::new(0), AtomicBool::new(false));
    let answered = || {
        answers.fetch_add(1, Ordering::AcqRel);
    };
    let count = CALLS * soak() as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| kill_at_random(&managers, &answers, &end));

        let certain = scope.spawn(|| {
            let addrs: Vec<_> = addrs.iter().map(|addr| addr.clone().resend()).collect();
            let calls: Vec<_> =
                (0..count).map(|number| addrs[number as usize % 3].send(Say(number))).collect();
            for (call, number) in calls.into_iter().zip(0..) {
                assert_eq!(call.wait().unwrap(), number);
                answered();
            }
        });
        let tolerant = scope.spawn(|| {
            for number in 0..count {
                match addrs[number as usize % 3].send(Say(number)).wait() {
                    Ok(answer) => {
                        assert_eq!(answer, number);
                        answered();
                    }
                    Err(Error::ActorStopped { .. }) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
        });
        let relayed = scope.spawn(|| {
            for number in 0..count / 4 {
                let place = number as usize;
                let call = addrs[place % 3]
                    .clone()
                    .resend()
                    .send(Relay(addrs[(place + 1) % 3].clone().resend(), number));
                assert_eq!(call.wait().unwrap(), Ok(number));
                answered();
            }
        });
        let results = [certain.join(), tolerant.join(), relayed.join()];
        end.store(true, Ordering::Release);
        results.into_iter().for_each(|result| result.unwrap());
    });
}
