//! Jobs with several processes, tested with hosts as processes of this machine.

mod arrays;
mod deaths;
mod output;
mod scale;
mod stays;
mod workers;

use std::collections::BTreeSet;

use fiber::Pool;
use fiber::sync::Barrier;
use fiber_test_support::signals::{is_running, kill, send};
use fiber_test_support::tasks::all_at_once;

/// A pool of `processes` workers, `per_job` of them in a host.
fn pool(processes: usize, per_job: usize) -> Pool {
    let builder = Pool::builder().processes(processes).processes_per_job(per_job);
    let pool = builder.build().expect("the options are valid");
    pool.wait_until_ready().wait().expect("the workers start");
    pool
}

/// The parent of this process: in a worker, its host.
fn parent_pid() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned())
}

/// The hosts of a pool's workers, one of them for each worker, in their order.
fn hosts(pool: &Pool, processes: usize) -> Vec<u32> {
    let task = |all: Barrier| {
        all.wait_all().wait().unwrap();
        parent_pid()
    };
    let mut hosts = pool.chunk(1).map(task, all_at_once(processes)).wait().unwrap();
    hosts.sort_unstable();
    hosts
}

fn distinct(pids: &[u32]) -> usize {
    pids.iter().collect::<BTreeSet<_>>().len()
}
