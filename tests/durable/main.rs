//! Durable calls: what a program has recorded is there when it is started again.
//!
//! The tests start this binary again with the name of a [scenario](scenarios) in its environment,
//! several times with one journal. Tasks write to a file, so that a test knows what has run.

mod errors;
mod failures;
mod graphs;
mod identity;
mod killed;
mod repeated;
mod scenarios;
mod sweep;

use std::process::ExitCode;

use fiber_test_support::{Test, run_scenario, run_tests};

fn main() -> ExitCode {
    run_scenario(fiber::init).unwrap_or_else(|| run_tests(|_| false))
}
