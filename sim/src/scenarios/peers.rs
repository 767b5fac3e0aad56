//! Processes that use what others of the session have: links between children, which break although
//! both ends live on.

use std::time::Duration;

use fiber::simulation::in_this_session;
use fiber::supervisor::Backoff;
use fiber::sync::Value;
use fiber::{AsyncManager, Error, Pool, Process, Queue};
use fiber_world::{Faults, all_counted, count, counted, is_dead, nap, set_slowest};

use super::Outcome;
use super::actors::{Numbered, Ordered, Sender};
use crate::Ground;

/// Longer than an object outlives a holder, and than a link is made again.
const SETTLED: Duration = Duration::from_secs(60);

/// Waits until the scenario has counted this.
fn wait_for(what: &'static str) {
    while counted(what, 0) == 0 && !is_dead() {
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Children use the values of others, which have no handles of their own. A link that is cut fails
/// what is in progress, and harms no later operation: a value is there as long as its owner and a
/// holder are.
pub(super) fn values(ground: &mut Ground) -> Outcome {
    type Offer = (u64, u64, Value<u64>);
    fn own(owner: u64, users: Vec<Queue<Offer>>, values: u64) -> Result<(), Error> {
        for number in 0..values {
            let value = Value::new(0)?;
            for user in &users {
                user.put((owner, number, value.clone())).wait()?;
            }
        }
        drop(users);
        wait_for("over");
        Ok(())
    }
    fn use_all(user: u64, offers: Queue<Offer>, values: u64) -> Result<(), Error> {
        let values: Vec<_> = (0..values).map(|_| offers.get().wait()).collect::<Result<_, _>>()?;
        count("ready", user);
        let add = |value: &Value<u64>| value.update(|sum| *sum += 1).wait();
        while counted("calm", 0) == 0 && !is_dead() {
            for (owner, number, value) in &values {
                if add(value).is_ok() {
                    count("added", owner << 32 | number);
                }
                nap(Duration::from_millis(200));
            }
        }
        for (owner, number, value) in &values {
            if counted("dead owner", *owner) == 0
                && let Err(error) = add(value)
            {
                count("broken", owner << 32 | number);
                fiber_world::note(format_args!("value {number} of {owner}: {error}"));
            }
        }
        Ok(())
    }
    ground.session(|ground| {
        let (owners, users) = (ground.processes() as u64, ground.processes() as u64);
        let each = ground.items(4);
        let offers = (0..users).map(|_| Queue::new()).collect::<Result<Vec<_>, _>>()?;
        let owners: Vec<_> = (0..owners)
            .map(|owner| Process::builder().try_spawn(own, (owner, offers.clone(), each)))
            .collect();
        let all = each * owners.len() as u64;
        let users: Vec<_> = (0..)
            .zip(&offers)
            .map(|(user, offers)| {
                Process::builder().try_spawn(use_all, (user, offers.clone(), all))
            })
            .collect();
        while (all_counted("ready").len()) < users.len() {
            std::thread::sleep(Duration::from_millis(20));
        }
        // A link that says nothing for long is no link: its ends notice that at times of their own.
        let storm = ground.storm_of(|faults| Faults {
            cuts: 2 * faults.cuts + faults.losses,
            kills: faults.kills / 2,
            within: faults.within,
            ..Faults::NONE
        });
        ground.wait_for_calm(storm);
        std::thread::sleep(SETTLED);
        for (owner, number) in owners.iter().zip(0..) {
            if !owner.is_alive() {
                count("dead owner", number);
            }
        }
        count("calm", 0);
        for user in users {
            // It may have died.
            let _ = user.wait();
        }
        count("over", 0);
        for owner in owners {
            let _ = owner.wait();
        }
        let broken = all_counted("broken");
        assert!(broken.is_empty(), "values have ended with their owners alive: {broken:x?}");
        Ok(())
    })
}

/// Handles of queues go from their owners to others, which give them away and keep them, while
/// messages take long. Each queue is there for its last holder, and ends with it.
pub(super) fn passed(ground: &mut Ground) -> Outcome {
    fn own(market: Queue<Queue<u64>>, queues: u64, owner: u64) -> Result<(), Error> {
        for _ in 0..queues {
            market.put(Queue::new()?).wait()?;
        }
        market.flush().wait()?;
        drop(market);
        wait_for("over");
        std::thread::sleep(SETTLED);
        let left = fiber::stats()?.report.queues.len();
        if left > 0 {
            count("left", owner);
        }
        Ok(())
    }
    /// Keeps a queue beyond the task's end, and gives it away, too.
    fn keep(queue: Queue<u64>, task: u64, market: Queue<Queue<u64>>) -> Result<(), Error> {
        if task.is_multiple_of(2) {
            market.put(queue.clone()).wait()?;
        }
        let put = move || {
            nap(Duration::from_secs(4));
            let put = || {
                queue.put(task).wait()?;
                queue.flush().wait()
            };
            let is_put: Result<(), Error> = put();
            count(if is_put.is_ok() { "put" } else { "lost" }, task);
        };
        std::thread::spawn(in_this_session(put));
        Ok(())
    }
    ground.session(|ground| {
        let (owners, each) = (ground.processes() as u64, ground.items(3));
        let pool = Pool::builder().processes(ground.processes()).build()?;
        pool.apply(|| (), ()).wait()?;
        set_slowest(Duration::from_millis(1 << ground.rng.u8(..12)));
        let market = Queue::new()?;
        let owners: Vec<_> = (0..owners)
            .map(|owner| Process::builder().try_spawn(own, (market.clone(), each, owner)))
            .collect();
        let mut tasks = 0;
        for _ in 0..each * owners.len() as u64 {
            let call = pool.try_apply(keep, (market.get().wait()?, tasks, market.clone()));
            call.wait()?;
            tasks += 1;
        }
        for _ in 0..tasks.div_ceil(2) {
            market.get().wait()?.put(9).wait()?;
        }
        while (0..tasks).any(|task| counted("put", task) + counted("lost", task) == 0) {
            std::thread::sleep(Duration::from_secs(1));
        }
        let lost = all_counted("lost");
        assert!(lost.is_empty(), "queues of tasks {lost:?} have ended before their last holders");
        count("over", 0);
        for owner in owners {
            owner.wait()?;
        }
        let left = all_counted("left");
        assert!(left.is_empty(), "queues of {left:?} outlive their handles");
        set_slowest(Duration::ZERO);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Children call actors in other children, while the actors and the links to them die. The messages
/// of each arrive in order, and each call ends, those with `resend` with an answer.
pub(super) fn callers(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
        let manager = builder.backoff(Backoff::none()).start(Ordered::default, ()).wait()?;
        let (messages, senders) = (ground.items(100), ground.processes() as u64);
        let start = |number| {
            let (resends, haste, seed) = (number % 2 == 0, ground.rng.u8(..), ground.rng.u64(..));
            let sender = Sender { number, addr: manager.addr(), resends, haste };
            Process::spawn(Sender::send, (sender, messages, seed))
        };
        let children: Vec<_> = (0..senders).map(start).collect();
        for child in &children {
            child.started().wait()?;
        }
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let handles: Vec<_> = children.iter().map(Process::handle).collect();
        let ended: Vec<_> = children.into_iter().map(|child| child.wait()).collect();
        ground.wait_for_calm(storm);
        for handle in handles {
            handle.join().wait()?;
        }
        // Their last messages have arrived.
        manager.addr().resend().send(Numbered { sender: senders, number: 1 }).wait()?;
        for (sender, end) in (0..).zip(ended) {
            let is_resent = sender % 2 == 0;
            match end {
                Ok(()) => {}
                Err(Error::Exited { .. } | Error::Start { .. }) if !is_calm => continue,
                Err(other) => return Err(other.into()),
            }
            assert_eq!(counted("out of order", sender), 0, "of sender {sender}");
            for number in 0..messages {
                let times = counted("handled", Numbered { sender, number }.key());
                assert!(
                    (times > 0 || (!is_resent && !is_calm))
                        && (times <= 1 || (is_resent && !is_calm)),
                    "message {number} of sender {sender} came {times} times"
                );
            }
        }
        manager.stop().wait()?;
        Ok(())
    })
}
