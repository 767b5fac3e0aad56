//! Pools that are closed, stopped, killed or dropped.

use fiber::Error;
use fiber_test_support::signals::is_running;
use fiber_test_support::wait::wait_until;

use super::{pool, sleep_ms, square};

fn slow(x: u64) -> u64 {
    sleep_ms(1);
    x
}

#[test]
fn stop_finishes_all_calls_even_if_its_reply_is_dropped() {
    let pool = pool(2);
    let work = pool.map(slow, 0..100);
    drop(pool.stop());
    let refused = pool.apply(square, 3).wait().unwrap_err().to_string();
    assert!(refused.contains("closed"), "{refused}");
    assert_eq!(work.wait().unwrap().len(), 100);
    pool.join().wait().unwrap();
}

#[test]
fn every_method_of_an_ended_pool_returns_the_reason() {
    let pool = pool(1);
    pool.kill();
    let errors = [
        pool.wait_until_ready().wait().unwrap_err(),
        pool.scale(2).wait().unwrap_err(),
        pool.broadcast(1).map(drop).unwrap_err(),
        pool.apply(square, 3).wait().unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("was killed"), "{error}");
    }
    pool.join().wait().unwrap();
}

#[test]
fn dropping_a_pool_kills_its_workers() {
    let pool = pool(2);
    let pid = pool.apply(std::process::id, ()).wait().unwrap();
    let hanging = pool.map(|_: u32| sleep_ms(3_600_000), 0..10);
    drop(pool);
    assert!(matches!(hanging.wait(), Err(Error::PoolEnded { .. })));
    wait_until("the worker's end", || !is_running(pid));
}
