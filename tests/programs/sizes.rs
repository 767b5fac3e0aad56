//! Values that are too large, or that do not deserialize.

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

#[trial]
fn values_that_are_too_large_fail_with_the_limit() {
    let ending = Setup::new("too large").env("FIBER_MAX_MESSAGE", "64KiB").run().code(0);
    let ending = ending.says(&["the pool goes on: 60000", "many small ones: 1000"]);
    for what in [
        "argument: ",
        "argument among others: ",
        "result: ",
        "broadcast: ",
        "inputs: ",
        "input made by the task before: ",
        "message of a topic: ",
        "spawned argument: ",
        "spawned result: ",
    ] {
        let line = ending.out.lines().find(|line| line.starts_with(what)).unwrap_or_default();
        assert!(
            line.contains("more than `max_message` allows (65536)"),
            "{what} {line}\n{}",
            ending.out
        );
    }
}

#[trial]
fn values_that_do_not_deserialize_fail_with_their_type() {
    let ending = Setup::new("crooked results").run().code(0).says(&["the pool goes on: 9"]);
    for what in ["result: ", "argument: ", "in a map: "] {
        let line = ending.out.lines().find(|line| line.starts_with(what)).unwrap_or_default();
        assert!(
            line.contains("Crooked") && line.contains("match each other"),
            "{what} {line}\n{}",
            ending.out
        );
    }
}
