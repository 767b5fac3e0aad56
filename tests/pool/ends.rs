//! Pools that are closed, terminated or dropped.

use std::time::Duration;

use fiber::Error;

use crate::{pool, sleep_ms, square};

#[test]
fn a_closed_pool_ends_its_calls_and_takes_no_more() {
    let pool = pool(2);
    let work = pool.map(
        |x: u64| {
            sleep_ms(1);
            x
        },
        0..100,
    );
    pool.close();
    let refused = pool.map(square, 0..3).wait().unwrap_err().to_string();
    assert!(refused.contains("closed"), "{refused}");
    assert_eq!(work.wait().unwrap().len(), 100);
    pool.join().wait().unwrap();
}

#[test]
fn termination_fails_what_is_under_way() {
    let pool = pool(2);
    let hanging = pool.map(|_: u32| sleep_ms(3_600_000), 0..10);
    pool.terminate().wait().unwrap();
    let error = hanging.wait().unwrap_err().to_string();
    assert!(error.contains("terminated"), "{error}");
    let error = pool.apply(square, 1).wait().unwrap_err().to_string();
    assert!(error.contains("terminated"), "{error}");
}

#[test]
fn an_ended_pool_says_so_to_all_who_ask() {
    let pool = pool(1);
    pool.terminate().wait().unwrap();
    let errors = [
        pool.wait_until_ready().wait().unwrap_err(),
        pool.scale(2).wait().unwrap_err(),
        pool.broadcast(1).map(drop).unwrap_err(),
        pool.apply(square, 3).wait().unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("was killed"), "{error}");
    }
}

#[test]
fn dropping_a_pool_ends_its_workers() {
    let pool = pool(2);
    let pid = pool.apply(std::process::id, ()).wait().unwrap();
    let hanging = pool.map(|_: u32| sleep_ms(3_600_000), 0..10);
    drop(pool);
    assert!(matches!(hanging.wait(), Err(Error::PoolEnded { .. })));
    wait_until(|| !alive(pid));
}

/// Waits for what the system does by itself.
fn wait_until(reached: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !reached() {
        assert!(std::time::Instant::now() < deadline, "it did not happen");
        std::thread::yield_now();
    }
}

fn alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}
