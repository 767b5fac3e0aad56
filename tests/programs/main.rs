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
mod intruders;
mod leftovers;
mod limits;
mod logs;
mod memory;
mod metrics;
mod network;
mod output;
mod parent;
mod program;
mod proxy;
mod scenarios;
mod secrets;
mod shortages;
mod sizes;
mod starts;
mod timeline;
mod traces;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(program::SCENARIO) {
        return scenarios::run(&scenario);
    }
    let topics = [
        ("apart", apart::TESTS),
        ("buffers", buffers::TESTS),
        ("configuration", configuration::TESTS),
        ("deaths", deaths::TESTS),
        ("detached", detached::TESTS),
        ("draining", draining::TESTS),
        ("executable", executable::TESTS),
        ("leftovers", leftovers::TESTS),
        ("limits", limits::TESTS),
        ("logs", logs::TESTS),
        ("memory", memory::TESTS),
        ("metrics", metrics::TESTS),
        ("network", network::TESTS),
        ("output", output::TESTS),
        ("secrets", secrets::TESTS),
        ("shortages", shortages::TESTS),
        ("sizes", sizes::TESTS),
        ("starts", starts::TESTS),
        ("timeline", timeline::TESTS),
        ("traces", traces::TESTS),
        ("intruders", intruders::TESTS),
    ];
    let impossible = |topic: &str| topic == "memory" && !memory::can_be_limited();
    let trials = topics.iter().flat_map(|(topic, tests)| {
        tests.iter().map(move |(name, test)| {
            Trial::test(format!("{topic}::{name}"), move || {
                test();
                Ok(())
            })
            .with_ignored_flag(impossible(topic))
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
