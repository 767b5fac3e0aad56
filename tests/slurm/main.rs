//! Tests of programs whose processes run on a real Slurm cluster.
//!
//! `TEST_BACKENDS=slurm` enables them, and then requires the cluster of `make slurm-up`, to which
//! `SLURM_CONF` leads.

mod allocations;
mod batch;
mod chaos;
#[path = "../programs/command.rs"]
mod command;
mod pilots;
mod scenarios;
mod stubs;
#[path = "../programs/tasks.rs"]
#[allow(dead_code)]
mod tasks;
#[path = "../programs/wait.rs"]
#[allow(dead_code)]
mod wait;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Trial};

/// Tests that stop the cluster's controller run alone.
static CONTROLLER: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(batch::SCENARIO) {
        scenarios::run(&scenario);
        return ExitCode::SUCCESS;
    }
    let asked = std::env::var("TEST_BACKENDS")
        .is_ok_and(|names| names.split(',').any(|name| name.trim() == "slurm"));
    if !asked {
        eprintln!("SKIPPED: tests on Slurm; TEST_BACKENDS=slurm enables them (`make slurm-up`)");
    }
    let topics = [
        ("allocations", allocations::TESTS),
        ("chaos", chaos::TESTS),
        ("pilots", pilots::TESTS),
        ("stubs", stubs::TESTS),
    ];
    let trials = topics.iter().flat_map(|(topic, tests)| {
        tests.iter().map(move |(name, test)| {
            // The commands of other tests would wait for the controller, and then give up.
            let stops_controller = name.contains("silent_controller");
            let run = move || {
                let _alone = stops_controller
                    .then(|| CONTROLLER.write().unwrap_or_else(PoisonError::into_inner));
                let _beside = (!stops_controller)
                    .then(|| CONTROLLER.read().unwrap_or_else(PoisonError::into_inner));
                test();
                Ok(())
            };
            Trial::test(format!("{topic}::{name}"), run).with_ignored_flag(!asked)
        })
    });
    let mut arguments = Arguments::from_args();
    // Each needs nodes of its own.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
