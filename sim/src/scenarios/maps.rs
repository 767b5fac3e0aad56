//! Calls of pools.

use std::ops::Range;
use std::time::Duration;

use fiber::pool::PoolBuilder;
use fiber::{Error, Pool};
use fiber_world::{count, counted, nap};

use super::Outcome;
use crate::Ground;

const NEVER: u32 = u32::MAX;
/// Longer than any message is on its way.
const SLOWEST: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(20);

fn square(x: u64) -> u64 {
    count("runs", x);
    nap(Duration::from_millis(x % 50));
    x * x
}

/// Returns a pool that works, whose workers have one thread or several.
pub(super) fn pool(ground: &mut Ground) -> Result<Pool, Error> {
    let threads = if ground.happens(64) { ground.rng.usize(2..4) } else { 1 };
    start(Pool::builder().processes(ground.processes()).threads_per_worker(threads))
}

fn start(builder: PoolBuilder) -> Result<Pool, Error> {
    let pool = builder.build()?.max_deaths(NEVER);
    assert_eq!(pool.apply(|| 9, ()).wait()?, 9);
    Ok(pool)
}

/// Returns numbers of an iterator that takes up to `pause` before each, and before its end.
fn slowly(numbers: Range<u64>, pause: Duration) -> impl Iterator<Item = u64> + Send + 'static {
    numbers.map(Some).chain([None]).map_while(move |number| {
        if !pause.is_zero() {
            nap(pause);
        }
        number
    })
}

/// One map: each task has its result, in order, and a task runs again only for a death. The pool
/// may be closed meanwhile.
pub(super) fn map(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let pool = pool(ground)?;
        let tasks = ground.items(200);
        let storm = ground.storm();
        let call = pool.map(square, 0..tasks);
        let closes_early = ground.happens(64);
        if closes_early {
            pool.close();
        }
        let squares = call.wait()?;
        assert_eq!(squares, (0..tasks).map(|x| x * x).collect::<Vec<_>>());
        let ends = pool.stats().deaths + storm.terminations();
        for task in 0..tasks {
            let runs = counted("runs", task);
            assert!(runs >= 1, "task {task} has a result, and did not run");
            assert!(runs <= 1 + ends, "task {task} ran {runs} times, and {ends} workers ended");
        }
        ground.wait_for_calm(storm);
        if !closes_early {
            pool.wait_until_ready().wait()?;
            pool.close();
        }
        pool.join().wait()?;
        Ok(())
    })
}

/// A buffer with room for a few results.
const SMALL: u64 = 100;
/// How far the tasks of the uses of a pool are from each other. One of them has no last task.
const FAR: u64 = 1_000_000;

/// One use of a pool in [`calls`]. The tasks are the numbers of a range.
struct Use {
    pool: Pool,
    tasks: Range<u64>,
    kind: u8,
    /// How long its iterator takes, at most, before each task.
    pause: Duration,
}

/// Several threads use one pool at a time, each in its way. Its workers may be replaced after some
/// tasks. Where nothing goes wrong, each task runs once.
pub(super) fn calls(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let mut builder = Pool::builder().processes(ground.processes());
        if ground.happens(64) {
            builder = builder.tasks_per_worker(ground.rng.u64(1..50));
        }
        let pool = start(builder.threads_per_worker(ground.rng.usize(1..3)))?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let uses: Vec<_> = (0..ground.processes() as u64)
            .map(|number| {
                let chunk = *ground.rng.choice(&[1, 1, 7, 40]).expect("there are some");
                let pause = *ground.rng.choice(&[0, 0, 5, 30]).expect("there are some");
                Use {
                    pool: if ground.happens(64) { pool.buffer(SMALL) } else { pool.clone() }
                        .chunk(chunk),
                    tasks: number * FAR..number * FAR + ground.items(60),
                    kind: ground.rng.u8(..6),
                    pause: Duration::from_millis(pause),
                }
            })
            .collect();
        let tasks: Vec<_> = uses.iter().flat_map(|its| its.tasks.clone()).collect();
        let users: Vec<_> =
            uses.into_iter().map(|its| std::thread::spawn(move || its.run())).collect();
        for user in users {
            if let Err(panic) = user.join() {
                std::panic::resume_unwind(panic);
            }
        }
        ground.wait_for_calm(storm);
        assert_eq!(pool.apply(|| 25, ()).wait()?, 25);
        pool.close();
        pool.join().wait()?;
        let again: Vec<_> = tasks.into_iter().filter(|task| counted("runs", *task) > 1).collect();
        assert!(!is_calm || again.is_empty(), "tasks that ran again: {again:?}");
        Ok(())
    })
}

impl Use {
    fn run(self) {
        let Use { pool, tasks, kind, pause } = self;
        let expected: Vec<_> = tasks.clone().map(|x| x * x).collect();
        let items = slowly(tasks.clone(), pause);
        match kind {
            0 => {
                let squares = pool.map(square, items).wait().expect("each task has a result");
                assert_eq!(squares, expected);
            }
            1 => {
                let squares = pool.imap(square, items).wait().inspect(|_| nap(MOMENT));
                let squares: Result<Vec<_>, _> = squares.collect();
                assert_eq!(squares.expect("each task has a result"), expected);
            }
            2 => {
                let squares = pool.imap_unordered(square, items).wait();
                let squares: Result<Vec<_>, _> = squares.collect();
                let mut squares = squares.expect("each task has a result");
                squares.sort_unstable();
                assert_eq!(squares, expected);
            }
            3 => {
                for x in tasks.clone().take(9) {
                    assert_eq!(pool.apply(square, x).wait().expect("it has a result"), x * x);
                }
                return;
            }
            4 => {
                pool.map(square, items).detach();
                while tasks.clone().any(|task| counted("runs", task) == 0) {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            _ => {
                // Taken in part, and dropped: the pool forgets the rest.
                let mut squares = pool.imap(square, tasks.start..).wait();
                for x in tasks.take(20) {
                    let square = squares.next().expect("it has no end");
                    assert_eq!(square.expect("each task has a result"), x * x);
                    nap(pause * 10);
                }
                return;
            }
        }
        for task in tasks {
            assert!(counted("runs", task) >= 1, "task {task} has a result, and did not run");
        }
    }
}

/// Calls with little room for arguments and results: who waits for room goes on.
pub(super) fn room(ground: &mut Ground) -> Outcome {
    fn fill((task, bytes): (u64, usize)) -> Vec<u8> {
        nap(Duration::from_millis(task % 3));
        vec![task as u8; bytes]
    }
    ground.session(|ground| {
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(NEVER);
        assert_eq!(pool.apply(square, 3).wait()?, 9);
        let storm = ground.storm();
        let callers: Vec<_> = (0..ground.processes())
            .map(|_| {
                let (tasks, bytes) = (ground.items(200), ground.rng.usize(..3000));
                let pool = pool.buffer(ground.rng.u64(1..8000)).chunk(ground.rng.u32(1..9));
                let pause = Duration::from_millis(ground.rng.u64(..3));
                std::thread::spawn(move || {
                    let mut next = 0;
                    for filled in pool.imap(fill, (0..tasks).map(move |task| (task, bytes))).wait()
                    {
                        assert_eq!(
                            filled.expect("each task has a result"),
                            vec![next as u8; bytes]
                        );
                        next += 1;
                        nap(pause);
                    }
                    assert_eq!(next, tasks);
                })
            })
            .collect();
        for caller in callers {
            if let Err(panic) = caller.join() {
                std::panic::resume_unwind(panic);
            }
        }
        if ground.happens(64) {
            far_ahead(ground, &pool)?;
        }
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        Ok(())
    })
}

/// How many tasks a feeder may be ahead, however small they are.
const AHEAD: u64 = 64 << 10;

/// A call with so many tasks that its feeder waits for the caller alone, which takes its time, and
/// may drop the call.
fn far_ahead(ground: &mut Ground, pool: &Pool) -> Outcome {
    let mut numbers = pool.chunk(8192).imap(|x: u64| x, 0..3 * AHEAD).wait();
    let taken = if ground.happens(64) { 2 * AHEAD } else { ground.rng.u64(..AHEAD / 2) };
    std::thread::sleep(SLOWEST);
    for expected in 0..taken {
        assert_eq!(numbers.next().expect("there are more")?, expected);
    }
    Ok(())
}

/// A call that is cancelled: once that is done, none of its tasks begins, and other calls are
/// unharmed.
pub(super) fn cancel(ground: &mut Ground) -> Outcome {
    fn note(most_millis: u64) {
        count("begins", 0);
        nap(Duration::from_millis(most_millis));
    }
    ground.session(|ground| {
        let pool = pool(ground)?;
        // A process without its links would not hear of the end of the call.
        let storm = ground.storm_of_processes();
        let is_calm = storm.is_calm();
        // A worker goes on for long with the large chunks that it holds, unless it drops them.
        let (tasks, chunk, most_millis) = match ground.rng.u8(..4) {
            0 => (20_000, 10_000, 4),
            1 => (20_000, 10_000, 200),
            _ => (ground.items(200) as usize, ground.rng.u32(1..20), 30),
        };
        let mut doomed = pool.chunk(chunk).map(note, vec![most_millis; tasks]);
        let other = pool.map(square, 0..20);
        nap(Duration::from_millis(200));
        if ground.happens(128) {
            doomed.cancel();
        }
        drop(doomed);
        assert_eq!(other.wait()?, (0..20).map(|x| x * x).collect::<Vec<_>>());
        ground.wait_for_calm(storm);
        // The workers hear of it when the message arrives.
        std::thread::sleep(if is_calm { Duration::from_secs(1) } else { SLOWEST });
        let before = counted("begins", 0);
        std::thread::sleep(Duration::from_secs(60));
        assert_eq!(before, counted("begins", 0), "a task begins after its call was cancelled");
        pool.stop().wait()?;
        Ok(())
    })
}

/// A pool that grows and shrinks while it works.
pub(super) fn scale(ground: &mut Ground) -> Outcome {
    fn hold() {
        std::thread::sleep(Duration::from_secs(5));
    }
    ground.session(|ground| {
        let pool = pool(ground)?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let tasks = ground.items(200);
        let call = pool.map(square, 0..tasks);
        let mut processes = 1;
        for _ in 0..ground.items(6) {
            processes = ground.processes();
            // It waits until there are as many.
            drop(pool.scale(processes));
            nap(Duration::from_millis(500));
        }
        assert_eq!(call.wait()?, (0..tasks).map(|x| x * x).collect::<Vec<_>>());
        for task in (0..tasks).filter(|_| is_calm) {
            assert_eq!(counted("runs", task), 1, "runs of task {task}");
        }
        ground.wait_for_calm(storm);
        pool.scale(processes).wait()?;
        // By then, each loss of a worker is known.
        std::thread::sleep(SLOWEST);
        // It does not wait for workers whose start has failed.
        while pool.ready_workers() != processes {
            std::thread::sleep(Duration::from_secs(1));
        }
        // Workers that end after their tasks are not ready for others.
        let held = pool.map(hold, vec![(); 100 * processes]);
        nap(Duration::from_millis(100));
        drop(pool.scale(1));
        nap(Duration::from_millis(100));
        pool.scale(processes).wait()?;
        let workers = pool.stats().workers;
        let ready = workers.iter().filter(|worker| !worker.retiring).count();
        assert_eq!(ready, processes, "workers are ready");
        drop(pool.scale(1));
        std::thread::sleep(SLOWEST);
        let workers = pool.stats().workers.len();
        assert_eq!(workers, 1, "workers are there although one is wanted");
        drop(held);
        pool.close();
        pool.join().wait()?;
        Ok(())
    })
}

/// Tasks that fail have their failures, and those that retry have as many runs as they may.
pub(super) fn failures(ground: &mut Ground) -> Outcome {
    fn fails(task: u64) -> Result<u64, String> {
        count("tries", task);
        nap(Duration::from_millis(20));
        if task.is_multiple_of(3) { Err(format!("task {task} fails")) } else { Ok(task) }
    }
    ground.session(|ground| {
        let pool = pool(ground)?;
        let retries = ground.rng.u32(..4);
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let tasks = ground.items(60);
        let mut next = 0;
        for result in pool.retries(retries).try_imap(fails, 0..tasks).wait() {
            match result {
                Ok(task) => {
                    assert_eq!((task, next % 3 == 0), (next, false));
                    let tries = counted("tries", next);
                    assert!(tries == 1 || !is_calm, "{tries} tries of a task without a failure");
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        next % 3 == 0 && text.contains(&format!("task {next} fails")),
                        "{text}"
                    );
                    let tries = counted("tries", next);
                    let expected = 1 + u64::from(retries);
                    assert!(
                        tries == expected || (tries > expected && !is_calm),
                        "{tries} tries with {retries} retries"
                    );
                }
            }
            next += 1;
        }
        assert_eq!(next, tasks);
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        Ok(())
    })
}
