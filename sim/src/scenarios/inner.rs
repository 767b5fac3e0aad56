//! Tasks that make tasks.

use std::time::Duration;

use fiber::{Error, Pool, as_completed};
use fiber_world::{count, counted, nap};

use super::Outcome;
use crate::Ground;

const NEVER: u32 = u32::MAX;
/// Children of the task `task` have the numbers from `MANY * task` on.
const MANY: u64 = 10;

/// Returns the number of tasks in the tree below a task, with itself, as its children say.
fn grow(task: u64, layers: u32) -> u64 {
    count("runs", task);
    nap(Duration::from_millis(task % 20));
    let width = if layers == 0 { 0 } else { 1 + task % 3 };
    let children = (0..width).map(move |child| (MANY * task + child, layers - 1));
    let pool = Pool::current().expect("a worker runs this").max_deaths(NEVER);
    let sum = |sizes: Vec<u64>| sizes.iter().sum::<u64>();
    let total = match task % 5 {
        0 => pool.map(grow, children).wait().map(sum),
        1 => pool.imap_unordered(grow, children).wait().sum(),
        2 => {
            let calls: Vec<_> = children.map(|child| pool.apply(grow, child)).collect();
            as_completed(calls).wait().map(|(_, size)| size).sum()
        }
        3 => pool.apply(sum, pool.map(grow, children).outputs()).wait(),
        _ => {
            // The last is dropped with its call.
            let more = (layers > 0).then(|| (MANY * task + 9, layers - 1));
            let mut sizes = pool.imap(grow, children.chain(more)).wait();
            (0..width).map(|_| sizes.next().expect("there is one for each")).sum()
        }
    };
    1 + total.expect("each task has a result")
}

fn size(task: u64, layers: u32) -> u64 {
    let width = if layers == 0 { 0 } else { 1 + task % 3 };
    1 + (0..width).map(|child| size(MANY * task + child, layers - 1)).sum::<u64>()
}

/// Trees of tasks that make and wait for tasks: whatever dies, each has its result, and no worker
/// waits for itself.
pub(super) fn inner(ground: &mut Ground) -> Outcome {
    // A worker that dies while its tasks wait takes what they store with it.
    ground.has_dead_processes = true;
    ground.session(|ground| {
        let mut builder = Pool::builder().processes(ground.processes());
        if ground.happens(64) {
            builder = builder.tasks_per_worker(ground.rng.u64(1..20));
        }
        let pool = builder.threads_per_worker(ground.rng.usize(1..3)).build()?.max_deaths(NEVER);
        assert_eq!(pool.apply(|| 9, ()).wait()?, 9);
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let (first, layers) = (ground.rng.u64(1..90), ground.rng.u32(..4));
        let trees = ground.items(6);
        let call = pool.map(grow, (first..first + trees).map(move |task| (task, layers)));
        let closes_early = ground.happens(64);
        if closes_early {
            pool.close();
        }
        let sizes = call.wait()?;
        let expected: Vec<_> = (first..first + trees).map(|task| size(task, layers)).collect();
        assert_eq!(sizes, expected);
        for task in (first..first + trees).filter(|_| is_calm) {
            assert_eq!(counted("runs", task), 1, "runs of task {task}");
        }
        ground.wait_for_calm(storm);
        if !closes_early {
            // One tree is dropped while it grows: its workers are free for others.
            drop(pool.apply(grow, (first, layers)));
            assert_eq!(pool.apply(|| 25, ()).wait()?, 25);
            pool.close();
        }
        pool.join().wait()?;
        assert!(matches!(Pool::current(), Err(Error::Invalid { .. })));
        Ok(())
    })
}
