//! Many workers in hosts, simulated: the workers are threads of their hosts.

use std::collections::BTreeSet;

use fiber::Pool;
use fiber::stats::ProcessRole;
use fiber_test_support::wait::wait_until;

const HOSTS: usize = 8;
const PER_HOST: usize = 64;

fn simulated_pool() -> Pool {
    let builder = Pool::builder().processes(HOSTS * PER_HOST).processes_per_job(PER_HOST);
    let pool = builder.simulated().build().expect("the options are valid");
    pool.wait_until_ready().wait().expect("the workers start");
    pool
}

#[test]
fn a_pool_of_many_workers_shrinks_by_whole_hosts() {
    let pool = simulated_pool();
    let prefix = format!("{}/", pool.name());
    // The host of each worker, as its place says it.
    let hosts = || -> Vec<String> {
        let processes = fiber::stats().unwrap().report.processes.into_iter();
        processes
            .filter(|process| {
                process.role == ProcessRole::Worker && process.name.starts_with(&prefix)
            })
            .filter_map(|worker| worker.place.rsplit(' ').next().map(str::to_string))
            .collect()
    };
    assert_eq!(hosts().into_iter().collect::<BTreeSet<_>>().len(), HOSTS);
    pool.scale(PER_HOST).wait().unwrap();
    wait_until("one host", || hosts().len() == PER_HOST);
    assert_eq!(hosts().into_iter().collect::<BTreeSet<_>>().len(), 1);
    assert_eq!(pool.map(|x: u64| x + 1, 0..10_000).wait().unwrap()[9_999], 10_000);
}
