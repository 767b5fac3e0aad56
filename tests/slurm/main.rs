//! Tests of programs whose processes run on a real Slurm cluster.
//!
//! `TEST_BACKENDS=slurm` enables them, and then requires the cluster of `make slurm-up`, to which
//! `SLURM_CONF` leads.

mod allocations;
mod batch;
mod chaos;
#[path = "../batch/limited.rs"]
mod limited;
mod pilots;
mod scenarios;
#[path = "../batch/pilots.rs"]
mod shared_pilots;
mod stubs;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use fiber_test_support::{Test, is_asked, run_scenario, tests};
use libtest_mimic::{Arguments, Trial};

pub(crate) use self::pilots::SYSTEM;

/// Tests that stop the cluster's controller run alone.
static CONTROLLER: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    run_scenario(scenarios::init).unwrap_or_else(run_all)
}

fn run_all() -> ExitCode {
    let asked = is_asked("slurm");
    if !asked {
        eprintln!("SKIPPED: tests on Slurm; TEST_BACKENDS=slurm enables them (`make slurm-up`)");
    }
    let trial = |test: &'static Test| {
        // The commands of other tests would wait for the controller, and then give up.
        let stops_controller = test.name().contains("silent_controller");
        let run = move || {
            let _alone = stops_controller
                .then(|| CONTROLLER.write().unwrap_or_else(PoisonError::into_inner));
            let _beside = (!stops_controller)
                .then(|| CONTROLLER.read().unwrap_or_else(PoisonError::into_inner));
            test.run();
            Ok(())
        };
        Trial::test(test.path(), run).with_ignored_flag(!asked)
    };
    let mut arguments = Arguments::from_args();
    // Each needs nodes of its own.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    libtest_mimic::run(&arguments, tests().into_iter().map(trial).collect()).exit_code()
}
