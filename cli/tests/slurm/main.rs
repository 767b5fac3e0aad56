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

use fiber_test_support::{Test, is_asked, run_scenario, run_tests};

fn main() -> ExitCode {
    run_scenario(batch::scenarios::init).unwrap_or_else(|| {
        let asked = is_asked("slurm");
        if asked {
            cluster::must_answer();
        } else {
            eprintln!("SKIPPED: the command on Slurm; TEST_BACKENDS=slurm asks for it");
        }
        run_tests(|_| !asked)
    })
}
