//! Starts of processes in an engine that refuses jobs, has no room for long, or kills them soon.

use std::time::Duration;

use fiber::{Pool, Process};
use fiber_core::Config;
use fiber_core::simulation::Fault;
use fiber_world::{let_happen, nap, now, processes, set_unusual, strike};

use super::Outcome;
use crate::Ground;

const NEVER: u32 = u32::MAX;

fn square(x: u64) -> u64 {
    nap(Duration::from_millis(x % 50));
    x * x
}

fn strike_all(fault: Fault) {
    for process in processes() {
        strike(fault, Some(&process));
    }
}

/// An engine refuses all jobs again and again, each time for less than `start_timeout`, and all
/// workers die. A pool that has had a worker since does not give up.
pub(super) fn refusals(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let pool = Pool::builder().processes(ground.processes().min(3)).build()?;
        let pool = pool.max_deaths(NEVER);
        assert_eq!(pool.apply(square, 3).wait()?, 9);
        for _ in 0..ground.items(8) {
            let_happen(&["an engine refuses all jobs"]);
            strike_all(Fault::Kill);
            let tasks = ground.items(20);
            let squares = pool.map(square, 0..tasks).wait()?;
            assert_eq!(squares, (0..tasks).map(|x| x * x).collect::<Vec<_>>());
            nap(Duration::from_secs(40));
        }
        set_unusual(false);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Workers that have done tasks get SIGTERM, and their successors die before they have any. The
/// pool goes on for `start_timeout`.
pub(super) fn infants(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let pool = Pool::builder().processes(ground.processes().min(3)).build()?;
        assert_eq!(pool.apply(square, 3).wait()?, 9);
        let fault = if ground.happens(128) { Fault::Terminate } else { Fault::Kill };
        pool.wait_until_ready().wait()?;
        strike_all(fault);
        nap(Duration::from_secs(1));
        let begun = now();
        for _ in 0..ground.items(20) {
            pool.wait_until_ready().wait()?;
            strike_all(Fault::Kill);
            nap(Duration::from_millis(10));
            if now() - begun > Duration::from_secs(40) {
                break;
            }
        }
        // A worker that is dead may get the task before its end is known.
        assert_eq!(pool.max_deaths(u32::MAX).apply(square, 4).wait()?, 16);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Jobs wait for room for longer than their processes may take to start. All start.
pub(super) fn waits(ground: &mut Ground) -> Outcome {
    let start_timeout = Duration::from_secs(ground.rng.u64(2..10));
    let mut config = Config::default();
    config.start_timeout = start_timeout;
    ground.configured(config, |ground| {
        let_happen(&["a job waits for room", "an engine hangs"]);
        let several = ground.items(20);
        let processes: Vec<_> = (0..several).map(|x| Process::spawn(square, x)).collect();
        for (process, x) in processes.into_iter().zip(0..) {
            assert_eq!(process.wait()?, x * x);
        }
        set_unusual(false);
        Ok(())
    })
}

/// Pools end while their hosts start, for the first time or again. None of these comes later.
pub(super) fn unborn(ground: &mut Ground) -> Outcome {
    for _ in 0..ground.items(6) {
        ground.session(|ground| {
            let (processes, per_job) = (2 * ground.processes(), ground.rng.usize(2..=3));
            let pool = Pool::builder().processes(processes).processes_per_job(per_job).build()?;
            if ground.happens(128) {
                assert_eq!(pool.apply(square, 3).wait()?, 9);
                strike_all(Fault::Kill);
            }
            if ground.happens(128) {
                nap(Duration::from_micros(ground.rng.u64(..200)));
            }
            if ground.happens(128) {
                pool.stop().wait()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
