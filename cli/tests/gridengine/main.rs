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

use fiber_test_support::{Test, is_asked, run_scenario, run_tests};

fn main() -> ExitCode {
    run_scenario(batch::scenarios::init).unwrap_or_else(|| {
        let asked = is_asked("gridengine");
        if asked {
            cluster::must_answer();
        } else {
            eprintln!("SKIPPED: the command on Grid Engine; TEST_BACKENDS=gridengine asks for it");
        }
        run_tests(|_| !asked)
    })
}
