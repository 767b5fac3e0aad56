//! Failures of detached calls are logged, because no handle returns them.

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

#[trial]
fn failures_of_detached_calls_are_logged() {
    let ending = Setup::new("detached").run().code(0).says(&[
        "a detached call failed: task 0 (`",
        "panicked: ",
        "too small",
        "task 1 (`",
        "failed: odd",
        "was abandoned: 1 of its workers died while they ran it; the last one exited with code 3",
        "a detached call failed: pool `dropped` has ended, because its last handle was dropped: \
         keep a clone of it",
        "a detached call failed: pool `joined` ",
    ]);
    assert_eq!(ending.out.matches("a detached call failed").count(), 5, "{}", ending.out);
}
