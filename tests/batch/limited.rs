//! Programs that a time limit ends.

use std::time::Duration;

use fiber::Pool;
use fiber_test_support::scenario;

/// Maps 4000 tasks of 20 ms whose results are recorded.
#[scenario("recorded")]
fn recorded() {
    let task = |index: u64| {
        std::thread::sleep(Duration::from_millis(20));
        index * 3
    };
    let pool = Pool::builder().processes(4).start().wait().unwrap();
    println!("ready");
    let results = pool.durable("work").map(task, 0..4000u64).wait().unwrap();
    println!("right: {}", results.into_iter().eq((0..4000).map(|index| index * 3)));
}

/// Maps more tasks of 20 ms than there is time for, and prints the error that ends the call.
#[scenario("unrecorded")]
pub(crate) fn unrecorded() {
    let task = |index: u64| {
        std::thread::sleep(Duration::from_millis(20));
        index
    };
    let pool = Pool::builder().processes(4).start().wait().unwrap();
    let mut done = Vec::new();
    for result in pool.imap(task, 0..100_000u64).wait() {
        match result {
            Ok(index) => done.push(index),
            Err(error) => {
                println!("{error}");
                break;
            }
        }
    }
    let count = done.len() as u64;
    println!("in order: {}", count > 0 && done.into_iter().eq(0..count));
}
