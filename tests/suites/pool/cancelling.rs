//! Calls that are cancelled.

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
