//! Helpers of several test suites: they register tests and the programs that these start, start
//! programs, and call the commands of engines.

// The attributes name this crate.
extern crate self as fiber_test_support;

pub mod command;
pub mod docker;
pub mod following;
pub mod gpus;
mod hosted;
pub mod kubeconfig;
pub mod kubectl;
pub mod processes;
pub mod program;
mod scenario;
mod scenarios;
pub mod signals;
mod suite;
pub mod surroundings;
pub mod tasks;
pub mod trace;
pub mod tricky;
pub mod wait;

pub use fiber_test_macros::{crates, scenario, trial};
pub use inventory;

pub use self::scenario::{Scenario, WARNINGS, exit_code, print_warnings_if_asked, run_scenario};
pub use self::scenarios::{TOGETHER, init};
pub use self::suite::{
    Test, is_asked, is_there, run_tests, run_tests_on, runs, soak, tests, topic,
};
pub use self::wait::hang;
