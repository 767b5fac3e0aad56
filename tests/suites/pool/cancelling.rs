//! Calls that are cancelled or dropped.

use fiber::Error;

use super::{pool, sleep_ms, square};

#[test]
fn cancel_ends_running_tasks() {
    let pool = pool(2);
    let mut hanging = pool.map(|_: u32| sleep_ms(3_600_000), 0..10);
    // Both workers hang, so this runs only if one of them is replaced.
    let other = pool.apply(square, 7);
    hanging.cancel();
    assert!(matches!(hanging.wait(), Err(Error::Cancelled { .. })));
    assert_eq!(other.wait().unwrap(), 49);
}

#[test]
fn dropping_a_handle_cancels_the_tasks_that_have_not_started() {
    let directory = tempfile::tempdir().unwrap();
    let touch = |path: String| {
        sleep_ms(20);
        std::fs::write(path, "").unwrap();
    };
    let path = |n: u32| directory.path().join(n.to_string()).to_string_lossy().into_owned();
    let paths: Vec<_> = (0..1000).map(path).collect();
    let pool = pool(2);
    pool.wait_until_ready().wait().unwrap();
    drop(pool.map(touch, paths));
    assert_eq!(pool.apply(square, 7).wait().unwrap(), 49);
    pool.stop().wait().unwrap();
    assert!(std::fs::read_dir(directory.path()).unwrap().count() < 500);
}
