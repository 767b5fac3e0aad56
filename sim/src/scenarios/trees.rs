//! Trees of supervised actors, of this process and of others.

use std::time::Duration;

use actix::prelude::*;
use fiber::error::ExitReason;
use fiber::supervisor::{Backoff, ChildSpec, Strategy, SupervisorRef};
use fiber::{AsyncManager, Error, Supervisor};
use fiber_core::simulation::Fault;
use fiber_world::{count, counted, draw, let_happen, nap, now, set_unusual, strike};

use super::Outcome;
use super::actors::{Echo, Say};
use crate::Ground;

const HOUR: Duration = Duration::from_secs(3600);
/// The longest time that a restart takes when nothing unusual happens.
const RESTART: Duration = Duration::from_secs(15);
const MOMENT: Duration = Duration::from_micros(20);
/// The time within which a killed child has to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// An actor that does not stop when it is asked to.
struct Stubborn(u64);

impl Actor for Stubborn {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        count("starts", self.0);
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        Running::Continue
    }
}

/// Lets the actor's thread work for a time, as a handler that blocks does, from its kill on.
#[derive(Message)]
#[rtype(result = "()")]
struct Block {
    kill: u64,
    time: Duration,
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Number;

#[fiber::handlers]
impl Stubborn {
    fn block(&mut self, Block { kill, time }: Block) {
        while counted("kills", self.0) < kill {
            std::thread::sleep(MOMENT);
        }
        std::thread::sleep(time);
    }

    fn number(&mut self, Number: Number) -> u64 {
        self.0
    }
}

/// Actors are killed, also while their thread is busy for longer than the supervisor waits: each is
/// there again in time. One that does not stop is killed at its limit, which delays no other.
pub(super) fn stubborn(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let children = ground.processes() as u64 + 1;
        let rounds = ground.items(6);
        // No death counts twice.
        let mut builder = Supervisor::builder("app").intensity(rounds as u32 + 1, HOUR);
        if ground.happens(128) {
            builder = builder.backoff(Backoff::none());
        }
        let limit = Duration::from_secs(ground.rng.u64(1..90));
        for number in 0..children {
            let spec = ChildSpec::actor(name(number), move || Stubborn(number));
            builder = builder.child(spec.shutdown(limit));
        }
        let app = builder.start().wait()?;
        for _ in 0..rounds {
            let busy = match ground.rng.u8(..4) {
                0 => Duration::from_secs(ground.rng.u64(..20)),
                // It ends when the supervisor gives it up.
                1 => KILL_TIMEOUT + MOMENT * ground.rng.u32(..100),
                _ => Duration::ZERO,
            };
            restart_one(ground, &app, children, busy)?;
        }
        let (begun, last) = (now(), children - 1);
        let stop = app.stop_child(&name(last));
        restart_one(ground, &app, last, Duration::ZERO)?;
        stop.wait()?;
        let took = now() - begun;
        assert!(took < limit + KILL_TIMEOUT, "a child that has {limit:?} to stop took {took:?}");
        app.stop().wait()?;
        Ok(())
    })
}

fn name(number: u64) -> String {
    format!("child-{number}")
}

/// Kills one of the children, whose thread may be busy. It starts again in time, and answers.
fn restart_one(ground: &mut Ground, app: &SupervisorRef, children: u64, busy: Duration) -> Outcome {
    let victim = ground.rng.u64(..children);
    let before = counted("starts", victim);
    let child = app.child::<Stubborn>(&name(victim))?;
    let block = Block { kill: counted("kills", victim) + 1, time: busy };
    let blocked = (!busy.is_zero()).then(|| child.send(block));
    nap(Duration::from_millis(2));
    let begun = now();
    count("kills", victim);
    app.kill_child(&name(victim), ExitReason::Signal(9)).wait()?;
    while counted("starts", victim) == before {
        let took = now() - begun;
        assert!(took < busy + RESTART, "child {victim} does not start for {took:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(blocked);
    assert_eq!(child.send(Number).wait()?, victim);
    nap(Duration::from_secs(1));
    assert_eq!(child.send(Number).wait()?, victim);
    assert_eq!(counted("starts", victim), before + 1, "starts of child {victim} after one death");
    Ok(())
}

/// An actor that fails while it starts, or later.
struct Flapper {
    number: u64,
    failures: u64,
}

/// Returns whether the actor is to fail now, and counts that.
fn fails(number: u64, most: u64) -> bool {
    let fails = counted("starts", number) > 1 && counted("failures", 0) < most && draw(2) == 0;
    if fails {
        count("failures", 0);
    }
    fails
}

impl Flapper {
    fn start(number: u64, failures: u64) -> Flapper {
        count("starts", number);
        assert!(!fails(number, failures), "it fails while it starts");
        Flapper { number, failures }
    }
}

impl Actor for Flapper {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let time = Duration::from_nanos(draw(1 << draw(30)));
        context.run_later(time, |actor, _| {
            // The first one of each starts, so that the supervisor does.
            let is_first = counted("starts", actor.number) == 1;
            let fails = if is_first { counted("failures", 0) < actor.failures } else { false };
            if fails {
                count("failures", 0);
            }
            assert!(!fails && !self::fails(actor.number, actor.failures), "it fails later");
        });
    }
}

#[fiber::handlers]
impl Flapper {
    fn number(&mut self, Number: Number) -> u64 {
        self.number
    }
}

/// Actors fail again and again, several at a time and while others start. No failure counts twice:
/// their supervisor goes on after as many as it allows.
pub(super) fn flappers(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let (children, failures) = (ground.processes() as u64 + 1, ground.items(30));
        let strategies = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];
        let strategy = *ground.rng.choice(&strategies).expect("there are some");
        let mut builder = Supervisor::builder("app").strategy(strategy).backoff(Backoff::none());
        builder = builder.intensity(failures as u32, HOUR);
        for number in 0..children {
            let start = move || Flapper::start(number, failures);
            builder = builder.child(ChildSpec::actor(name(number), start));
        }
        let app = builder.start().wait()?;
        std::thread::sleep(Duration::from_secs(60));
        for number in 0..children {
            assert_eq!(app.child::<Flapper>(&name(number))?.send(Number).wait()?, number);
        }
        app.stop().wait()?;
        Ok(())
    })
}

static LATE_ENGINE: [&str; 3] =
    ["an engine is late to tell a death", "an engine is late to tell an end", "an engine hangs"];

/// Managed actors restart together, while an engine is late to tell their ends. Each call of the
/// next ones is answered.
pub(super) fn groups(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let mut app = Supervisor::builder("app").strategy(Strategy::OneForAll);
        app = app.intensity(u32::MAX, HOUR).backoff(Backoff::none());
        let mut addrs = Vec::new();
        for number in 0..=ground.processes() as u64 {
            let (child, addr) = AsyncManager::builder().name(name(number)).child(|| Echo, ())?;
            app = app.child(child);
            addrs.push(addr.resend());
        }
        let app = app.start().wait()?;
        let_happen(&LATE_ENGINE);
        for _ in 0..ground.items(6) {
            let victim = ground.rng.usize(..addrs.len());
            if ground.happens(128) {
                strike(Fault::Kill, Some(&name(victim as u64)));
            } else {
                let reason = ExitReason::Signal(9);
                app.kill_child(&name(victim as u64), reason).wait()?;
            }
            nap(Duration::from_secs(5));
            for (addr, number) in addrs.iter().zip(0..) {
                loop {
                    match addr.send(Say(number)).wait() {
                        Ok(answer) => break assert_eq!(answer, number),
                        // It reached an actor that was asked to stop.
                        Err(Error::ActorStopped { .. }) => nap(Duration::from_secs(1)),
                        Err(other) => return Err(other.into()),
                    }
                }
            }
            nap(Duration::from_secs(40));
        }
        set_unusual(false);
        app.stop().wait()?;
        Ok(())
    })
}
