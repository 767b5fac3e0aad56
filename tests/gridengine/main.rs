//! Tests of programs whose processes are tasks of jobs on a real Grid Engine cluster.
//!
//! `TEST_BACKENDS=gridengine` enables them, and then requires the cluster of `make gridengine-up`;
//! `TEST_GRIDENGINE` is the script that enters its hosts.

mod ends;
mod input;
mod job;
#[path = "../batch/limited.rs"]
mod limited;
mod pilots;
mod scenarios;
#[path = "../batch/pilots.rs"]
mod shared_pilots;
mod work;

use std::process::ExitCode;

use fiber_test_support::{Test, is_asked, run_scenario, run_tests};
use tracing_subscriber::filter::LevelFilter;

pub(crate) use self::pilots::SYSTEM;

fn main() -> ExitCode {
    run_scenario(print_warnings_if_asked).unwrap_or_else(|| {
        let asked = is_asked("gridengine");
        if asked {
            job::cluster("qstat", &["-f"]);
        } else {
            eprintln!(
                "SKIPPED: tests on Grid Engine; TEST_BACKENDS=gridengine enables them (`make \
                 gridengine-up`)"
            );
        }
        run_tests(|_| !asked)
    })
}

fn print_warnings_if_asked() {
    if std::env::var_os(job::WARNINGS).is_some() {
        let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN);
        subscriber.with_writer(std::io::stderr).with_ansi(false).init();
    }
}
