//! Durable calls: what a program has recorded is there when it is started again.
//!
//! The tests start this binary again with the name of a [scenario](scenarios) in its environment,
//! several times with one journal. Tasks write to a file, so that a test knows what has run.

mod errors;
mod failures;
mod identity;
mod killed;
#[path = "../programs/program.rs"]
#[allow(dead_code)]
mod program;
mod repeated;
mod scenarios;
mod sweep;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(program::SCENARIO) {
        return scenarios::run(&scenario);
    }
    let topics = [
        ("errors", errors::TESTS),
        ("failures", failures::TESTS),
        ("identity", identity::TESTS),
        ("killed", killed::TESTS),
        ("repeated", repeated::TESTS),
    ];
    let trials = topics.iter().flat_map(|(topic, tests)| {
        tests.iter().map(move |(name, test)| {
            Trial::test(format!("{topic}::{name}"), move || {
                test();
                Ok(())
            })
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The names and functions of a topic's tests.
type Tests = &'static [(&'static str, fn())];

/// Lists the tests of a topic.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: $crate::Tests = &[$((stringify!($test), $test)),+];
    };
}
use tests;
