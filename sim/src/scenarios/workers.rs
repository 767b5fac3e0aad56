//! Workers: hosts of several, SIGTERM, and tasks that kill them or never end.

use std::time::Duration;

use fiber::error::ExitReason;
use fiber::{Error, Pool};
use fiber_core::wait_for_kill;
use fiber_world::{Faults, all_counted, count, counted, die, is_dead, nap};

use super::Outcome;
use crate::Ground;

const NEVER: u32 = u32::MAX;

fn square(x: u64) -> u64 {
    count("runs", x);
    nap(Duration::from_millis(x % 50));
    x * x
}

/// Workers of hosts: a host that dies takes its workers, and all their tasks run again.
pub(super) fn hosts(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let (processes, per_job) = (3 * ground.processes(), ground.rng.usize(2..=8));
        let pool = Pool::builder().processes(processes).processes_per_job(per_job).build()?;
        assert_eq!(pool.apply(square, 3).wait()?, 9);
        let tasks = ground.items(200);
        let storm = ground.storm();
        let squares = pool.max_deaths(NEVER).map(square, 0..tasks).wait()?;
        assert_eq!(squares, (0..tasks).map(|x| x * x).collect::<Vec<_>>());
        ground.wait_for_calm(storm);
        pool.wait_until_ready().wait()?;
        pool.stop().wait()?;
        Ok(())
    })
}

/// Workers that get SIGTERM: tasks that end within the grace period run once, all others again, and
/// nothing counts against any.
pub(super) fn drains(ground: &mut Ground) -> Outcome {
    /// Every eighth task takes longer than the grace period.
    fn work(task: u64) -> u64 {
        count("begins", task);
        if task % 8 == 7 && counted("begins", task) < 3 {
            std::thread::sleep(Duration::from_secs(40));
        }
        nap(Duration::from_millis(500));
        count("ends", task);
        task
    }
    ground.session(|ground| {
        let per_job = if ground.happens(64) { 3 } else { 1 };
        let builder = Pool::builder().processes(ground.processes()).processes_per_job(per_job);
        let pool = builder.build()?.max_deaths(1);
        assert_eq!(pool.apply(square, 3).wait()?, 9);
        let tasks = ground.items(60);
        let storm = ground.storm_of(|faults| Faults {
            terminations: faults.terminations + faults.kills,
            within: faults.within,
            ..Faults::NONE
        });
        let results = pool.map(work, 0..tasks).wait()?;
        assert_eq!(results, (0..tasks).collect::<Vec<_>>());
        for task in (0..tasks).filter(|task| task % 8 != 7) {
            assert_eq!(counted("begins", task), 1, "task {task} has ended in its grace period");
        }
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Tasks that kill their workers, or never end, fail as often as they may, and others never do.
pub(super) fn blame(ground: &mut Ground) -> Outcome {
    fn work((task, pace): (u64, u64)) -> u64 {
        count("runs", task);
        nap(Duration::from_micros(task % 30 * pace));
        match task % 20 {
            3 => die(),
            13 => wait_for_kill(),
            _ => task,
        }
    }
    ground.session(|ground| {
        let threads = if ground.happens(64) { 2 } else { 1 };
        // A death may count once against the neighbour in another thread.
        let (max_deaths, max_timeouts) = (ground.rng.u32(threads..4), ground.rng.u32(1..3));
        let per_job = if ground.happens(64) { 3 } else { 1 };
        let builder = Pool::builder().processes(ground.processes()).processes_per_job(per_job);
        let pool = builder.threads_per_worker(threads as usize).build()?;
        let pool = pool.max_deaths(max_deaths).max_timeouts(max_timeouts);
        let limit = Duration::from_secs(5);
        let chunk = *ground.rng.choice(&[1, 1, 40, 150]).expect("there are some");
        let tasks = ground.items(if chunk > 100 { 200 } else { 100 });
        // More suspects than this run several in a part at first.
        let parts = u64::from(tasks > 64);
        // A worker holds many quick ones.
        let pace = *ground.rng.choice(&[1000, 20, 1, 0]).expect("there are some");
        let items = (0..tasks).map(move |task| (task, pace));
        let mut next = 0;
        for result in pool.timeout(limit).chunk(chunk).imap(work, items).wait() {
            let runs = counted("runs", next);
            match (next % 20, result) {
                (3, Err(Error::WorkerDied { index, deaths, exit, .. })) => {
                    assert_eq!((index, deaths, &exit.reason), (next, max_deaths, &KILLED));
                    // A death with other tasks in the worker counts against none. In another thread
                    // the task may run when its worker is killed for a timeout.
                    let certain = u64::from(max_deaths);
                    let most = if threads > 1 { u64::MAX } else { certain + 1 + parts };
                    assert!((certain..=most).contains(&runs), "{runs} of {certain} runs");
                }
                (13, Err(Error::TaskTimedOut { index, .. })) => {
                    let times = u64::from(max_timeouts);
                    assert_eq!(index, next);
                    // Others may have killed its worker.
                    assert!(runs >= times, "task {next} ran {runs} times of {times}");
                }
                (_, Ok(task)) => assert_eq!(task, next),
                (_, Err(error)) => return Err(error.into()),
            }
            next += 1;
        }
        assert_eq!(next, tasks);
        pool.stop().wait()?;
        Ok(())
    })
}

const KILLED: ExitReason = ExitReason::Signal(9);

/// In an allocation with a time limit, tasks begin as long as they would end before it. The call
/// then fails, with the right results of those that have ended.
pub(super) fn limits(ground: &mut Ground) -> Outcome {
    const TASK: Duration = Duration::from_secs(2);
    /// The runtime keeps 10 s for the end of the program, and looks each half second. A death is
    /// known, and its task begins again, within these seconds.
    const RESERVE: Duration = Duration::from_secs(8);
    fn work(x: u64) -> u64 {
        std::thread::sleep(TASK);
        if !is_dead() {
            count("ended at", fiber_world::now().as_millis() as u64);
        }
        x + 1
    }
    let limit = Duration::from_secs(ground.rng.u64(20..120));
    let begun = fiber_world::now();
    ground.allocation(limit, |ground| {
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(u32::MAX);
        assert_eq!(pool.apply(work, 1).wait()?, 2);
        // Jumps of the wall clock would move the limit, and a process that stands still is late.
        let storm = ground.storm_of(|faults| {
            let faults = faults.of_processes();
            Faults { jumps: 0, stops: 0, ..faults }
        });
        for (outcome, expected) in pool.imap(work, 0..).wait().zip(1..) {
            match outcome {
                Ok(value) => assert_eq!(value, expected),
                Err(Error::TimeLimit { .. }) => break,
                Err(other) => return Err(other.into()),
            }
        }
        let last = all_counted("ended at").into_iter().max().map(Duration::from_millis);
        let last = last.expect("the first task has ended") - begun;
        assert!(last <= limit - RESERVE, "a task ended at {last:?} of {limit:?}");
        let now = fiber_world::now() - begun;
        assert!(now <= limit, "the call failed at {now:?} of {limit:?}");
        ground.wait_for_calm(storm);
        pool.kill();
        pool.join().wait()?;
        Ok(())
    })
}
