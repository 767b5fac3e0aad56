//! Programs and workers that SIGTERM asks to end.

use crate::program::Setup;

crate::tests![
    a_worker_ends_after_its_grace_period_with_all_below_it,
    sigterm_that_fiber_does_not_handle_counts_against_no_task,
];

fn a_worker_ends_after_its_grace_period_with_all_below_it() {
    let setup = Setup::new("endless task").env("FIBER_GRACE", "300ms");
    setup.run().code(0).says(&["ended after its grace period: true", "result: 1, deaths: 0"]);
}

fn sigterm_that_fiber_does_not_handle_counts_against_no_task() {
    let setup = Setup::new("endless task").env("FIBER_SIGNALS", "false");
    setup.run().code(0).says(&["result: 1, deaths: 0"]);
}
