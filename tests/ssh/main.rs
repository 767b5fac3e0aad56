//! Tests of programs whose processes are on machines that ssh reaches.
//!
//! `TEST_BACKENDS=ssh` enables them, and then requires the machines `a`, `b` and `c` of
//! `TEST_SSH_CONFIG`, which are network namespaces of this one: `make test-cluster`.

mod cache;
mod ends;
#[path = "../programs/hosted.rs"]
#[allow(dead_code)]
mod hosted;
mod input;
mod machines;
#[path = "../programs/program.rs"]
#[allow(dead_code)]
mod program;
#[path = "../docker/scenarios.rs"]
#[allow(dead_code)]
mod scenarios;
#[path = "../programs/tasks.rs"]
#[allow(dead_code)]
mod tasks;
#[path = "../programs/wait.rs"]
#[allow(dead_code)]
mod wait;
mod work;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(program::SCENARIO) {
        if std::env::var_os(machines::WARNINGS).is_some() {
            let level = tracing_subscriber::filter::LevelFilter::WARN;
            tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
        }
        scenarios::run(&scenario);
        return ExitCode::SUCCESS;
    }
    let asked = std::env::var("TEST_BACKENDS")
        .is_ok_and(|names| names.split(',').any(|name| name.trim() == "ssh"));
    if asked {
        machines::must_answer();
    } else {
        eprintln!(
            "SKIPPED: tests on machines over ssh; TEST_BACKENDS=ssh enables them, and requires \
             TEST_SSH_CONFIG"
        );
    }
    let topics = [
        ("work", work::TESTS),
        ("ends", ends::TESTS),
        ("input", input::TESTS),
        ("cache", cache::TESTS),
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
    // They cut the wires of machines that all of them use.
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
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
