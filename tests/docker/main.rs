//! Tests of programs whose processes are containers, on a real Docker engine.
//!
//! `TEST_BACKENDS=docker` enables them, and then requires an engine: `make test-cluster`.

mod chaos;
#[path = "../programs/command.rs"]
mod command;
mod daemon;
#[path = "../programs/docker.rs"]
#[allow(dead_code)]
mod docker;
mod engine;
#[path = "../programs/hosted.rs"]
mod hosted;
mod hosts;
mod images;
mod input;
mod lives;
mod networks;
#[path = "../programs/program.rs"]
#[allow(dead_code)]
mod program;
mod resources;
mod scenarios;
#[path = "../programs/tasks.rs"]
mod tasks;
#[path = "../programs/wait.rs"]
mod wait;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(program::SCENARIO) {
        scenarios::run(&scenario);
        return ExitCode::SUCCESS;
    }
    let asked = std::env::var("TEST_BACKENDS")
        .is_ok_and(|names| names.split(',').any(|name| name.trim() == "docker"));
    if asked {
        docker::must_answer();
    } else {
        eprintln!(
            "SKIPPED: tests on Docker; TEST_BACKENDS=docker enables them, and requires a Docker \
             engine"
        );
    }
    let topics = [
        ("chaos", chaos::TESTS),
        ("daemon", daemon::TESTS),
        ("hosts", hosts::TESTS),
        ("images", images::TESTS),
        ("input", input::TESTS),
        ("lives", lives::TESTS),
        ("networks", networks::TESTS),
        ("resources", resources::TESTS),
    ];
    let trials = topics.iter().flat_map(|(topic, tests)| {
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
