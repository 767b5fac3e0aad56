//! Tests of programs whose processes are on machines that ssh reaches.
//!
//! `TEST_BACKENDS=ssh` enables them, and then requires the machines `a`, `b` and `c` of
//! `TEST_SSH_CONFIG`, which are network namespaces of this one: `make test-cluster`.

mod cache;
mod ends;
mod input;
mod machines;
mod work;

use std::process::ExitCode;

use fiber_test_support::{Test, print_warnings_if_asked, run_scenario, run_tests_on};

fn main() -> ExitCode {
    let run = || run_tests_on("ssh", machines::answer);
    run_scenario(print_warnings_if_asked).unwrap_or_else(run)
}
