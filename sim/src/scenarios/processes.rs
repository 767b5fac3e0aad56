//! Processes, and supervisors of them.

use std::time::Duration;

use fiber::error::ExitReason;
use fiber::supervisor::{Backoff, ChildSpec, ChildState, Restart, Strategy};
use fiber::{Error, Process, Supervisor};
use fiber_core::wait_for_kill;
use fiber_world::{count, counted, is_dead, nap};

use super::Outcome;
use crate::Ground;

/// Processes of one function: each ends, with its result or its reason. Where nothing goes wrong,
/// all have results. One that is to stop does, also while it starts.
pub(super) fn processes(ground: &mut Ground) -> Outcome {
    fn double(x: u64) -> u64 {
        count("runs", x);
        nap(Duration::from_secs(2));
        2 * x
    }
    ground.session(|ground| {
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let count = ground.items(20);
        let processes: Vec<_> = (0..count).map(|x| Process::spawn(double, x)).collect();
        for _ in 0..ground.items(3) {
            let endless = Process::spawn(wait_for_kill_in, ());
            if ground.happens(128) {
                nap(Duration::from_millis(50));
            }
            endless.handle().stop().wait()?;
        }
        for (process, x) in processes.into_iter().zip(0..) {
            match process.wait() {
                Ok(doubled) => assert_eq!((doubled, counted("runs", x)), (2 * x, 1)),
                Err(Error::Exited { .. } | Error::Start { .. }) if !is_calm => {
                    assert!(counted("runs", x) <= 1, "a process runs its function once");
                }
                Err(other) => return Err(other.into()),
            }
        }
        ground.wait_for_calm(storm);
        Ok(())
    })
}

fn wait_for_kill_in() {
    wait_for_kill()
}

/// A tree of supervisors three deep: after the storm each of its processes is there once, and it
/// stops.
pub(super) fn supervisors(ground: &mut Ground) -> Outcome {
    fn work(number: u64) {
        count("starts", number);
        while !is_dead() {
            std::thread::sleep(Duration::from_secs(1));
            count("beats", number);
        }
    }
    ground.session(|ground| {
        let strategies = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];
        let builder = |name: &str, ground: &mut Ground| {
            let strategy = *ground.rng.choice(&strategies).expect("there are some");
            let backoff = Backoff::default();
            let builder = Supervisor::builder(name).strategy(strategy).backoff(backoff);
            builder.intensity(1000, Duration::from_secs(1))
        };
        let child = |number: u64| ChildSpec::process(format!("child-{number}"), work, number);
        let lowest = builder("lowest", ground).child(child(0)?).child(child(1)?);
        let middle = builder("middle", ground)
            .child(child(2)?)
            .child(ChildSpec::supervisor("lowest", lowest));
        let highest = builder("highest", ground)
            .child(child(3)?)
            .child(ChildSpec::supervisor("middle", middle));
        let app = highest.start().wait()?;
        let storm = ground.storm();
        ground.wait_for_calm(storm);
        let paths = ["child-3", "middle/child-2", "middle/lowest/child-0", "middle/lowest/child-1"];
        let is_whole = || {
            let tree = fiber::tree();
            paths.iter().all(|path| {
                let branch = tree.find(&format!("highest/{path}"));
                branch.is_some_and(|branch| branch.state == ChildState::Running)
            })
        };
        while !is_whole() {
            std::thread::sleep(Duration::from_secs(1));
        }
        // By then, each former process has ended.
        std::thread::sleep(Duration::from_secs(60));
        let before: Vec<_> = (0..4).map(|number| counted("beats", number)).collect();
        std::thread::sleep(Duration::from_secs(60));
        for (number, before) in (0..4).zip(before) {
            let beats = counted("beats", number) - before;
            assert!((59..=61).contains(&beats), "child {number} did {beats} beats in 60 s");
        }
        app.stop().wait()?;
        let left = fiber::stats()?.report.processes.split_off(1);
        assert!(left.is_empty(), "processes of a supervisor that has stopped: {left:?}");
        Ok(())
    })
}

/// The longest time that a restart takes when nothing unusual happens.
const RESTART: Duration = Duration::from_secs(10);

/// Children die one at a time: exactly those siblings restart that the strategy names, ended ones
/// included. One death more than the intensity allows ends the supervisor, and its own one starts
/// it again.
pub(super) fn strategies(ground: &mut Ground) -> Outcome {
    fn work(number: u64) {
        count("starts", number);
        wait_for_kill()
    }
    fn end(number: u64) {
        count("starts", number);
    }
    ground.session(|ground| {
        let strategies = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];
        let strategy = *ground.rng.choice(&strategies).expect("there are some");
        let (children, restarts) = (ground.processes() as u64 + 1, ground.rng.u32(..4));
        let ending = ground.happens(128).then(|| ground.rng.u64(..children));
        let child = |number: u64| {
            let name = format!("child-{number}");
            if ending == Some(number) {
                return Ok(ChildSpec::process(name, end, number)?.restart(Restart::Transient));
            }
            ChildSpec::process(name, work, number)
        };
        let mut inner = Supervisor::builder("inner").strategy(strategy).backoff(Backoff::none());
        inner = inner.intensity(restarts, Duration::from_secs(3600));
        for number in 0..children {
            inner = inner.child(child(number)?);
        }
        let outer = Supervisor::builder("outer").intensity(1, Duration::from_secs(3600));
        let outer = outer.backoff(Backoff::none()).child(child(children)?);
        let app = outer.child(ChildSpec::supervisor("inner", inner)).start().wait()?;
        let mut starts = vec![1; children as usize + 1];
        let mut deaths = 0;
        // The outer one restarts the inner one once.
        while deaths < 2 * (u64::from(restarts) + 1) {
            std::thread::sleep(RESTART);
            let counts: Vec<_> = (0..=children).map(|number| counted("starts", number)).collect();
            assert_eq!(counts, starts, "{strategy:?}, {restarts} restarts, {deaths} deaths");
            let mut victim = ground.rng.u64(..children);
            if ending == Some(victim) {
                victim = (victim + 1) % children;
            }
            let reason = ExitReason::Signal(9);
            let inner = app.supervisor("inner")?;
            inner.kill_child(&format!("child-{victim}"), reason).wait()?;
            deaths += 1;
            let gives_up = deaths % (u64::from(restarts) + 1) == 0;
            let first = if gives_up || strategy == Strategy::OneForAll { 0 } else { victim };
            let last = match strategy {
                Strategy::OneForOne if !gives_up => victim,
                _ => children - 1,
            };
            (first..=last).for_each(|number| starts[number as usize] += 1);
        }
        let reason = app.join().wait()?;
        let names_inner =
            matches!(&reason, ExitReason::IntensityReached { child, .. } if child == "inner");
        assert!(names_inner, "the end of the inner supervisor is not why: {reason}");
        assert!(fiber::tree().find("outer").is_none(), "it has ended, and is in the tree");
        Ok(())
    })
}
