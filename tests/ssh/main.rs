//! Tests of programs whose processes are on machines that ssh reaches.
//!
//! `TEST_BACKENDS=ssh` enables them, and then requires the machines `a`, `b` and `c` of
//! `TEST_SSH_CONFIG`, which are network namespaces of this one: `make test-cluster`.

mod cache;
mod ends;
mod input;
mod machines;
mod work;

use std::process::ExitCode;

use fiber_test_support::{Test, is_asked, run_scenario, run_tests};
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    run_scenario(print_warnings_if_asked).unwrap_or_else(|| {
        let asked = is_asked("ssh");
        if asked {
            machines::must_answer();
        } else {
            eprintln!(
                "SKIPPED: tests on machines over ssh; TEST_BACKENDS=ssh enables them, and \
                 requires TEST_SSH_CONFIG"
            );
        }
        run_tests(|_| !asked)
    })
}

fn print_warnings_if_asked() {
    if std::env::var_os(machines::WARNINGS).is_some() {
        let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN);
        subscriber.with_writer(std::io::stderr).init();
    }
}
