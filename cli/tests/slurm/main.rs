//! The command on a real Slurm cluster, the one that SLURM_CONF names: `make test-cluster`.
//! TEST_BACKENDS has to name it.
//!
//! This binary is also the program for `fiber run`: with a scenario in its environment, it plays
//! that.

#[path = "../batch/mod.rs"]
mod batch;
mod cluster;
mod input;
mod runs;
mod sessions;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use fiber_test_support::{Test, is_asked, run_scenario, tests};
use libtest_mimic::{Arguments, Trial};

/// The test that removes all sessions that have ended runs alone.
static ENDED: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    run_scenario(batch::scenarios::init).unwrap_or_else(run_all)
}

fn run_all() -> ExitCode {
    let asked = is_asked("slurm");
    if asked {
        cluster::must_answer();
    } else {
        eprintln!("SKIPPED: the command on Slurm; TEST_BACKENDS=slurm asks for it");
    }
    let trial = |test: &'static Test| {
        let removes_ended = test.name().contains("leftovers_removed");
        let run = move || {
            let _alone =
                removes_ended.then(|| ENDED.write().unwrap_or_else(PoisonError::into_inner));
            let _beside =
                (!removes_ended).then(|| ENDED.read().unwrap_or_else(PoisonError::into_inner));
            test.run();
            Ok(())
        };
        Trial::test(test.path(), run).with_ignored_flag(!asked)
    };
    let trials = tests().into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
