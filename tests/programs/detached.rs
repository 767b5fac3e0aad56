//! What becomes of detached calls is logged, since there is no handle to give it.

use crate::program::Setup;

crate::tests![failures_of_detached_calls_are_logged];

fn failures_of_detached_calls_are_logged() {
    let ending = Setup::new("detached").run().code(0).says(&[
        "of a detached call: task 0 (`",
        "panicked: ",
        "too small",
        "task 1 (`",
        "failed: odd",
        "was abandoned: 1 of its workers died while they ran it; the last one exited with code 3",
        "of a detached call: pool `dropped` was dropped",
        "of a detached call: pool `joined` ",
    ]);
    assert_eq!(ending.out.matches("of a detached call").count(), 5, "{}", ending.out);
}
