//! Many workers in hosts, simulated: the workers are threads of their hosts.

use std::collections::BTreeSet;

use fiber::Pool;
use fiber::stats::ProcessRole;
use fiber_test_support::wait::wait_until;

use super::kill;

const HOSTS: usize = 8;
const PER_HOST: usize = 64;

fn simulated_pool() -> Pool {
    let builder = Pool::builder().processes(HOSTS * PER_HOST).processes_per_job(PER_HOST);
    let pool = builder.simulated().build().expect("the options are valid");
    pool.wait_until_ready().wait().expect("the workers start");
    pool
}

/// The pids of the hosts of a pool.
fn hosts_of(pool: &Pool) -> Vec<u32> {
    let processes = fiber::stats().unwrap().report.processes;
    let prefix = format!("{}/host-", pool.name());
    processes
        .into_iter()
        .filter(|process| process.role == ProcessRole::Host && process.name.starts_with(&prefix))
        .filter_map(|host| host.pid)
        .collect()
}

#[test]
fn many_workers_lose_no_task_when_whole_hosts_die() {
    let pool = simulated_pool();
    let victims = hosts_of(&pool);
    assert_eq!(victims.len(), HOSTS);
    let tasks = 20 * (HOSTS * PER_HOST) as u64;
    let slow = |x: u64| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        x * x
    };
    let mut outcomes = pool.imap(slow, 0..tasks).wait();
    let mut results = vec![outcomes.next().unwrap().unwrap()];
    victims[..HOSTS / 2].iter().for_each(|host| kill(*host));
    results.extend(outcomes.map(Result::unwrap));
    assert!(results.into_iter().eq((0..tasks).map(|x| x * x)), "a result is lost or wrong");
    wait_until("all hosts", || hosts_of(&pool).len() == HOSTS);
    pool.wait_until_ready().wait().unwrap();
    assert_eq!(pool.ready_workers(), HOSTS * PER_HOST);
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
