//! Tests of programs whose processes are containers, on a real Docker engine.
//!
//! `TEST_BACKENDS=docker` enables them, and then requires an engine: `make test-cluster`.

mod chaos;
mod daemon;
mod engine;
mod hosts;
mod images;
mod input;
mod lives;
mod networks;
mod resources;

use std::process::ExitCode;

use fiber_test_support::{Test, docker, print_warnings_if_asked, run_scenario, run_tests_on};

fn main() -> ExitCode {
    let run = || run_tests_on("docker", docker::version);
    run_scenario(print_warnings_if_asked).unwrap_or_else(run)
}
