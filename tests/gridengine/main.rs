//! Tests of programs whose processes are tasks of jobs on a real Grid Engine cluster.
//!
//! `TEST_BACKENDS=gridengine` enables them, and then requires the cluster of `make gridengine-up`;
//! `TEST_GRIDENGINE` is the script that enters its hosts.

mod ends;
mod input;
mod job;
#[path = "../batch/limited.rs"]
mod limited;
mod pilots;
mod scenarios;
#[path = "../batch/pilots.rs"]
mod shared_pilots;
mod work;

use std::process::ExitCode;

use fiber_test_support::{Test, print_warnings_if_asked, run_scenario, run_tests_on};

pub(crate) use self::pilots::SYSTEM;

fn main() -> ExitCode {
    let ask = || job::try_cluster("qstat", &["-f"]);
    run_scenario(print_warnings_if_asked).unwrap_or_else(|| run_tests_on("gridengine", ask))
}
