//! Pools in the tasks of other pools.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fiber::{Config, Error, Pool};
use fiber_world::{count, counted, is_dead, nap};

use super::Outcome;
use crate::Ground;

const NEVER: u32 = u32::MAX;
const NAME: &str = "FIBER_MAX_NESTED_PROCESSES";

/// Counts the workers of nested pools that are at work, where none dies.
fn square(x: u64) -> u64 {
    let begun = count("begins", 0);
    count("most", begun - counted("ends", 0));
    nap(Duration::from_millis(x % 50));
    count("ends", 0);
    x * x
}

/// Waits in a task for its own pool. Nothing else ends the wait of a process that is dead.
fn wait<T>(call: impl IntoFuture<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut call = pin!(call.into_future());
    loop {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => return result,
            Poll::Pending if is_dead() => return Err(Error::WouldDeadlock),
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Returns the sum of the squares of numbers, from a pool of so many processes.
fn sum((processes, numbers): (usize, u64)) -> Result<u64, Error> {
    let pool = Pool::builder().processes(processes).build()?.max_deaths(NEVER);
    Ok(wait(pool.map(square, 0..numbers))?.into_iter().sum())
}

/// Waits until a pool has so many workers, which takes that many seats.
fn take_all(seats: usize) -> Result<(), Error> {
    let pool = Pool::builder().processes(seats).build()?;
    wait(pool.wait_until_ready())?;
    while pool.ready_workers() < seats && !is_dead() {
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// Pools of tasks have no more processes together than are allowed. Their sums are right, or they
/// have got none. After faults of all kinds, there is room for as many as before.
pub(super) fn nested(ground: &mut Ground) -> Outcome {
    // A worker that dies takes what its own pool stores with it.
    ground.has_dead_processes = true;
    let seats = ground.rng.usize(1..6);
    let mut config = Config::default();
    config.max_nested_processes = Some(seats);
    ground.configured(config, |ground| {
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(NEVER);
        assert_eq!(pool.apply(|| 9, ()).wait()?, 9);
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let (tasks, numbers) = (ground.items(10), ground.items(20));
        let processes = ground.processes();
        let items = (0..tasks).map(move |_| (processes, numbers));
        for result in pool.try_imap(sum, items).wait() {
            match result {
                Ok(sum) => assert_eq!(sum, (0..numbers).map(|x| x * x).sum::<u64>()),
                Err(error) if error.to_string().contains(NAME) || !is_calm => {}
                Err(other) => return Err(other.into()),
            }
        }
        ground.wait_for_calm(storm);
        let most = fiber_world::all_counted("most").into_iter().max().unwrap_or(0);
        assert!(!is_calm || most <= seats as u64, "{most} workers, and {seats} are allowed");
        // An engine that refuses all jobs does so for a while.
        std::thread::sleep(Duration::from_secs(60));
        pool.try_apply(take_all, seats).wait()?;
        pool.stop().wait()?;
        Ok(())
    })
}
