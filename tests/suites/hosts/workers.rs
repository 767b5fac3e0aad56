//! Workers in hosts work as those with a job of their own.

use fiber::{Meta, Pool};
use fiber_test_support::wait::wait_until;

use super::{distinct, hosts, is_running, pool};

#[test]
fn workers_share_a_job() {
    let pool = pool(5, 2);
    let hosts = hosts(&pool, 5);
    assert_eq!(distinct(&hosts), 3);
    assert!(!hosts.contains(&std::process::id()));
    assert_eq!(pool.map(|x: u64| x * x, 0..10_000).wait().unwrap()[9999], 9999 * 9999);
}

#[test]
fn a_worker_in_a_host_can_have_a_pool() {
    let nested =
        |n: u64| -> fiber::Result<Vec<u64>> { Pool::new(2)?.map(|x: u64| x + 1, 0..n).wait() };
    assert_eq!(
        pool(2, 2).try_map(nested, [3, 4]).wait().unwrap(),
        [vec![1, 2, 3], vec![1, 2, 3, 4]]
    );
}

#[test]
fn the_tree_shows_workers_below_their_pool_and_hosts_as_processes() {
    let pool = pool(2, 2);
    let host = format!(" in {}/host-", pool.name());
    wait_until("the host in the tree", || fiber::tree().to_string().contains(&host));
    let stats = fiber::stats().unwrap();
    let roles: Vec<_> =
        stats.report.processes.iter().map(|process| process.role.to_string()).collect();
    assert!(roles.iter().any(|role| role == "host"), "{roles:?}");
    drop(pool);
}

#[test]
fn a_pool_that_shrinks_or_ends_leaves_no_host() {
    let pool = pool(4, 2);
    let all = hosts(&pool, 4);
    assert_eq!(distinct(&all), 2);
    pool.scale(2).wait().unwrap();
    // Whole hosts go: one is left with both workers.
    wait_until("the end of the others", || {
        all.iter().filter(|host| is_running(**host)).count() == 2
    });
    let left = hosts(&pool, 2);
    assert_eq!(distinct(&left), 1);
    pool.stop().wait().unwrap();
    wait_until("the host's end", || !is_running(left[0]));
}

#[test]
fn a_request_that_a_host_can_not_grant_is_an_error_that_says_so() {
    let meta = Meta::new().cpu(100_000.0);
    let pool = Pool::builder().processes(2).processes_per_job(2).meta(meta).build().unwrap();
    let error = pool.apply(|| (), ()).wait().unwrap_err().to_string();
    assert!(error.contains("200000 CPU cores"), "{error}");
    let meta = Meta::new().cpu(1.0);
    let pool = Pool::builder().processes(1).processes_per_job(1_000).meta(meta).build().unwrap();
    assert_eq!(pool.apply(|| 7, ()).wait().unwrap(), 7);
    let error = Pool::builder().processes_per_job(0).build().unwrap_err().to_string();
    assert!(error.contains("processes_per_job"), "{error}");
}
