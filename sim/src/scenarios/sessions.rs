//! Whole sessions: broadcasts, and all kinds of objects side by side.

use std::time::Duration;

use fiber::error::PoolEndReason;
use fiber::simulation::in_this_session;
use fiber::supervisor::{Backoff, ChildSpec};
use fiber::sync::Lock;
use fiber::{AsyncManager, Broadcast, Error, Pool, Process, Queue, Supervisor};
use fiber_core::wait_for_kill;
use fiber_world::{count, counted, is_dead, nap};

use super::Outcome;
use super::actors::{Echo, Say};
use crate::Ground;

/// Tasks use values that each worker gets once, also one that is started later.
pub(super) fn broadcasts(ground: &mut Ground) -> Outcome {
    fn add(values: Broadcast<Vec<u64>>, task: u64) -> Result<u64, Error> {
        nap(Duration::from_millis(50));
        Ok(values.get()?.iter().sum::<u64>() + task)
    }
    ground.session(|ground| {
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(u32::MAX);
        assert_eq!(pool.apply(double, 3).wait()?, 6);
        let storm = ground.storm();
        for round in 0..ground.items(4) {
            let values: Vec<u64> = (round..round + ground.items(50)).collect();
            let sum: u64 = values.iter().sum();
            let values = pool.broadcast(values)?;
            let tasks = ground.items(50);
            let call = pool.try_map(add, (0..tasks).map(move |task| (values.clone(), task)));
            assert_eq!(call.wait()?, (0..tasks).map(|task| sum + task).collect::<Vec<_>>());
        }
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        Ok(())
    })
}

fn double(x: u64) -> u64 {
    nap(Duration::from_millis(20));
    2 * x
}

/// Objects of all kinds are used side by side, each from a thread of its own.
pub(super) fn everything(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(u32::MAX);
        assert_eq!(pool.apply(double, 3).wait()?, 6);
        let (lock, queue) = (Lock::new()?, Queue::new()?);
        let builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
        let manager = builder.backoff(Backoff::none()).start(|| Echo, ()).wait()?;
        let supervisor = Supervisor::builder("app").intensity(1000, Duration::from_secs(1));
        let server = ChildSpec::process("server", wait_for_kill_in, ())?;
        let app = supervisor.child(server).start().wait()?;
        // A process without its links would think that it holds the lock.
        let storm = ground.storm_of_processes();
        let count = ground.items(40);
        let processes: Vec<_> = (0..count.min(5)).map(|x| Process::spawn(double, x)).collect();
        let threads = [
            start(&pool, move |pool| {
                let doubles = pool.map(double, 0..count).wait()?;
                assert_eq!(doubles, (0..count).map(|x| 2 * x).collect::<Vec<_>>());
                Ok(())
            }),
            start(&(pool.clone(), lock), move |(pool, lock)| {
                let locks: Vec<_> = (0..count).map(|_| lock.clone()).collect();
                pool.map(hold, locks).wait()?;
                drop(lock.lock().wait()?);
                Ok(())
            }),
            start(&(pool.clone(), queue), move |(pool, queue)| {
                pool.try_map(put, (0..count).map(|x| (queue.clone(), x)).collect::<Vec<_>>())
                    .wait()?;
                let mut taken = vec![false; count as usize];
                while !taken.iter().all(|is_taken| *is_taken) {
                    taken[queue.get().wait()? as usize] = true;
                }
                Ok(())
            }),
            start(&manager.addr(), move |addr| {
                let addr = addr.clone().resend();
                for number in 0..count {
                    assert_eq!(addr.send(Say(number)).wait()?, number);
                }
                Ok(())
            }),
        ];
        for (process, x) in processes.into_iter().zip(0..) {
            match process.wait() {
                Ok(doubled) => assert_eq!(doubled, 2 * x),
                Err(Error::Exited { .. } | Error::Start { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        ground.wait_for_calm(storm);
        app.stop().wait()?;
        manager.stop().wait()?;
        pool.stop().wait()?;
        Ok(())
    })
}

type Thread = std::thread::JoinHandle<Result<(), Error>>;

/// Uses objects on a thread of its own.
fn start<T: Clone + Send + 'static>(
    objects: &T,
    work: impl FnOnce(&T) -> Result<(), Error> + Send + 'static,
) -> Thread {
    let objects = objects.clone();
    std::thread::spawn(in_this_session(move || work(&objects)))
}

fn wait_for_kill_in() {
    wait_for_kill()
}

fn hold(lock: Lock) {
    let Ok(held) = lock.lock().wait() else { return };
    if is_dead() {
        return;
    }
    let holder = count("holders", 0);
    nap(Duration::from_millis(10));
    if !is_dead() {
        assert_eq!(counted("holders", 0), holder, "two hold the lock");
    }
    drop(held);
}

fn put(queue: Queue<u64>, x: u64) -> Result<(), Error> {
    queue.put(x).wait()?;
    queue.flush().wait()
}

/// Threads, processes, descriptors and memory are short for a while: calls wait, or fail with an
/// error that says so, and all calls after the shortage work.
pub(super) fn shortages(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let builder = Pool::builder().processes(ground.processes());
        let pool = builder.threads_per_worker(ground.rng.usize(1..4)).build()?;
        let pool = pool.max_deaths(u32::MAX);
        assert_eq!(pool.apply(double, 3).wait()?, 6);
        let storm = ground.storm_of_shortage();
        for _ in 0..ground.items(5) {
            let tasks = ground.items(20);
            match pool.map(double, 0..tasks).wait() {
                Ok(doubles) => assert_eq!(doubles, (0..tasks).map(|x| 2 * x).collect::<Vec<_>>()),
                Err(error @ Error::System { .. }) => assert_names_limit(&error),
                Err(error) if has_failed(&error) => {}
                Err(other) => return Err(other.into()),
            }
            match Process::spawn(double, tasks).wait() {
                Ok(doubled) => assert_eq!(doubled, 2 * tasks),
                Err(Error::Exited { .. } | Error::Start { .. } | Error::System { .. }) => {}
                Err(other) => return Err(other.into()),
            }
            match AsyncManager::<Echo>::start(|| Echo, ()).wait() {
                Ok(manager) => drop(manager.send(Say(1)).wait()),
                Err(Error::Start { .. } | Error::System { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        ground.wait_for_calm(storm);
        // An engine that refuses all jobs does so for a while.
        std::thread::sleep(Duration::from_secs(60));
        match pool.map(double, 0..9).wait() {
            Ok(doubles) => assert_eq!(doubles, (0..9).map(|x| 2 * x).collect::<Vec<_>>()),
            Err(error) if has_failed(&error) => {}
            Err(other) => return Err(other.into()),
        }
        assert_eq!(Process::spawn(double, 4).wait()?, 8);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Returns whether a pool gave up, since its workers could not be started for a long time.
fn has_failed(error: &Error) -> bool {
    matches!(error, Error::PoolEnded { reason: PoolEndReason::Failed(_), .. })
}

fn assert_names_limit(error: &Error) {
    let text = error.to_string();
    assert!(text.contains("thread"), "it does not say what is short: {text}");
}
