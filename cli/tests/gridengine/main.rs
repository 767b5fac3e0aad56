//! The command on a real Grid Engine cluster: `make test-cluster`. TEST_BACKENDS has to name it;
//! TEST_GRIDENGINE is the script that enters its hosts.
//!
//! This binary is also the program for `fiber run`: with a scenario in its environment, it plays
//! that.

#[path = "../batch/mod.rs"]
mod batch;
mod cluster;
mod ends;
mod sessions;

use std::process::ExitCode;

use fiber_test_support::{Test, init, run_scenario, run_tests_on};

fn main() -> ExitCode {
    let ask = || cluster::try_grid("qstat", &["-f"]);
    run_scenario(init).unwrap_or_else(|| run_tests_on("gridengine", ask))
}
