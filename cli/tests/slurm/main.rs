//! The command on a real Slurm cluster, the one that SLURM_CONF names: `make test-cluster`.
//! TEST_BACKENDS has to name it.
//!
//! This binary is also the program for `fiber run`: with a scenario in its environment, it plays
//! that.

#[path = "../batch/mod.rs"]
mod batch;
mod cluster;
mod input;
mod runs;
mod sessions;

use std::process::ExitCode;

use fiber_test_support::{Test, command, init, run_scenario, run_tests_on};

fn main() -> ExitCode {
    let ask = || command::output("sinfo", &["--noheader"], "");
    run_scenario(init).unwrap_or_else(|| run_tests_on("slurm", ask))
}
