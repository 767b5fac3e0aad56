//! Pools of actors that grow and shrink.

use std::time::Duration;

use fiber::actor_pool::Routing;
use fiber::simulation::in_this_session;
use fiber::supervisor::Backoff;
use fiber::{ActorPool, AsyncManager, Reply};
use fiber_world::nap;

use super::Outcome;
use super::actors::{Echo, Say};
use crate::Ground;

/// The largest number of actors.
const MOST: usize = 5;

/// Two threads call the actors of a pool, while others join it and leave. Each call that is sent
/// again is answered: one that goes to an actor which leaves comes before its end.
pub(super) fn changes(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let options = || {
            let builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
            builder.backoff(Backoff::none())
        };
        let routing = [Routing::RoundRobin, Routing::LeastLoaded];
        let routing = *ground.rng.choice(&routing).expect("there are two");
        let builder = ActorPool::builder().manager(|_| options()).routing(routing).resend();
        let mut pool = builder.start(|_: u8| Echo, [0, 1]).wait()?;
        let storm = ground.storm();
        let count = ground.items(60);
        let callers: Vec<_> = (0..2)
            .map(|caller| {
                let addr = pool.addr();
                let call = move || {
                    let calls: Vec<(u64, Reply<u64>)> = (0..count)
                        .map(|number| {
                            nap(Duration::from_millis(20));
                            let by_key = (number + caller).is_multiple_of(2);
                            let message = Say(number);
                            let call = match by_key {
                                true => addr.send_to(&number, message),
                                false => addr.send(message),
                            };
                            (number, call)
                        })
                        .collect();
                    for (number, call) in calls {
                        assert_eq!(call.wait().expect("it is sent again"), number);
                    }
                };
                std::thread::spawn(in_this_session(call))
            })
            .collect();
        let mut leaving = Vec::new();
        for number in 0..ground.items(8) {
            nap(Duration::from_millis(ground.rng.u64(..200)));
            let grows = pool.size() == 1 || pool.size() < MOST && ground.rng.bool();
            if grows {
                let builder = options().name(format!("later-{number}"));
                // Its process may not start in a storm.
                if let Ok(manager) = builder.start(|| Echo, ()).wait() {
                    pool.add(manager);
                }
            } else {
                let leaver = ground.rng.usize(..pool.size());
                let addr = pool.addrs().nth(leaver).expect("there are as many");
                leaving.push(pool.remove(&addr)?);
            }
        }
        for caller in callers {
            if let Err(panic) = caller.join() {
                std::panic::resume_unwind(panic);
            }
        }
        for left in leaving {
            left.wait()?;
        }
        assert_eq!(pool.managers().len(), pool.size());
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        Ok(())
    })
}
