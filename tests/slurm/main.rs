//! Tests of programs whose processes run on a real Slurm cluster.
//!
//! `TEST_BACKENDS=slurm` enables them, and then requires the cluster of `make slurm-up`, to which
//! `SLURM_CONF` leads.

mod allocations;
mod batch;
mod chaos;
#[path = "../batch/limited.rs"]
mod limited;
mod pilots;
mod scenarios;
#[path = "../batch/pilots.rs"]
mod shared_pilots;
mod stubs;

use std::process::ExitCode;

use fiber_test_support::{Test, is_asked, run_scenario, run_tests};

pub(crate) use self::pilots::SYSTEM;

fn main() -> ExitCode {
    run_scenario(scenarios::init).unwrap_or_else(|| {
        let asked = is_asked("slurm");
        if !asked {
            eprintln!(
                "SKIPPED: tests on Slurm; TEST_BACKENDS=slurm enables them (`make slurm-up`)"
            );
        }
        run_tests(|_| !asked)
    })
}
