//! The command on a real Slurm cluster, the one that SLURM_CONF names: `make test-cluster`.
//! TEST_BACKENDS has to name it.
//!
//! This binary is also the program for `fiber run`: with a scenario in its environment, it plays
//! that.

mod cluster;
#[path = "../../../tests/programs/command.rs"]
mod command;
mod input;
#[path = "../../../tests/programs/program.rs"]
#[allow(dead_code)]
mod program;
mod runs;
mod scenarios;
mod sessions;
#[path = "../../../tests/programs/wait.rs"]
#[allow(dead_code)]
mod wait;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(program::SCENARIO) {
        return scenarios::run(&scenario);
    }
    let named = std::env::var("TEST_BACKENDS").unwrap_or_default();
    let asked = named.split(',').any(|name| name.trim() == "slurm");
    if asked {
        cluster::must_answer();
    } else {
        eprintln!("SKIPPED: the command on Slurm; TEST_BACKENDS=slurm asks for it");
    }
    let topics = [("input", input::TESTS), ("runs", runs::TESTS), ("sessions", sessions::TESTS)];
    let trials = topics.into_iter().flat_map(|(topic, tests)| {
        tests.iter().map(move |(name, test)| {
            let run = move || {
                test();
                Ok(())
            };
            Trial::test(format!("{topic}::{name}"), run).with_ignored_flag(!asked)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The tests of a topic by name.
type Tests = &'static [(&'static str, fn())];

/// Lists the tests of a topic.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: $crate::Tests = &[$((stringify!($test), $test)),+];
    };
}
use tests;
