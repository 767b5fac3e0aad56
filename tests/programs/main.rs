//! The promises of whole programs: how they start and end, their configuration, output and errors.
//!
//! The tests start this binary again with the name of a [scenario](scenarios) in its environment.
//! It then runs that program from the first line of its `main`, and so do the processes that fiber
//! starts for it.

mod apart;
mod buffers;
mod collector;
mod configuration;
mod deaths;
mod detached;
mod draining;
mod executable;
mod forks;
mod intruders;
mod leftovers;
mod limits;
mod logs;
mod memory;
mod metrics;
mod nested;
mod network;
mod output;
mod parent;
mod placed;
mod proxy;
mod scenarios;
mod secrets;
mod shortages;
mod sizes;
mod slots;
mod starts;
mod surroundings;
mod thread_ends;
mod timeline;
mod traces;

use std::process::ExitCode;

use fiber_test_support::{Test, run_scenario, run_tests};

fn main() -> ExitCode {
    let impossible = |test: &Test| test.topic() == "memory" && !memory::can_be_limited();
    run_scenario(|| {}).unwrap_or_else(|| run_tests(impossible))
}
