//! Tests of programs whose processes run on a real Slurm cluster.
//!
//! `TEST_BACKENDS=slurm` enables them, and then requires the cluster of `make slurm-up`, to which
//! `SLURM_CONF` leads.

mod allocations;
mod batch;
mod chaos;
mod eavesdropper;
#[path = "../batch/limited.rs"]
mod limited;
mod pilots;
mod scenarios;
#[path = "../batch/pilots.rs"]
mod shared_pilots;
mod stubs;
mod wire;

use std::process::ExitCode;

use fiber_test_support::{Test, command, init, run_scenario, run_tests_on};

pub(crate) use self::pilots::SYSTEM;

fn main() -> ExitCode {
    let ask = || command::output("sinfo", &["--noheader"], "");
    run_scenario(init).unwrap_or_else(|| run_tests_on("slurm", ask))
}
