//! Tests of programs whose processes are pods, on a real Kubernetes cluster.
//!
//! `TEST_BACKENDS=kubernetes` enables them, and then requires a cluster: the one of `make
//! test-cluster`, or any other in the kubeconfig, with `TEST_REGISTRY` if its nodes do not share
//! this host's Docker engine. Some tests change nodes or stop the API server, where they can: use a
//! cluster for tests only.

mod chaos;
mod cluster;
mod hosts;
mod input;
mod inside;
mod lives;
mod network;
mod node;
mod proxy;
mod resources;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use fiber_test_support::{Test, is_asked, run_scenario, tests};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// The topics whose tests disturb the whole cluster.
const ALONE: [&str; 2] = ["chaos", "node"];

/// Read-locked by tests that run beside others, write-locked by those that disturb the whole
/// cluster.
static CLUSTER: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    run_scenario(|| {}).unwrap_or_else(run_all)
}

fn run_all() -> ExitCode {
    let asked = is_asked("kubernetes");
    if asked {
        cluster::must_answer();
    } else {
        eprintln!(
            "SKIPPED: tests on Kubernetes; TEST_BACKENDS=kubernetes enables them, and requires a \
             cluster"
        );
    }
    let trial = |test: &'static Test| {
        let is_alone = ALONE.contains(&test.topic());
        let run = move || {
            let _alone = is_alone.then(|| CLUSTER.write().unwrap_or_else(PoisonError::into_inner));
            let _beside =
                (!is_alone).then(|| CLUSTER.read().unwrap_or_else(PoisonError::into_inner));
            run(test)
        };
        Trial::ignorable_test(test.path(), run).with_ignored_flag(!asked)
    };
    let trials = tests().into_iter().map(trial).collect();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    if asked {
        inside::clean();
    }
    conclusion.exit_code()
}

/// The reason why a test can't run on this cluster.
struct Unsuited(&'static str);

/// Skips a test that can't run on this cluster.
fn skip(why: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(Unsuited(why)))
}

fn run(test: &Test) -> Result<Completion, Failed> {
    match std::panic::catch_unwind(|| test.run()) {
        Ok(()) => Ok(Completion::Completed),
        Err(panic) => match panic.downcast::<Unsuited>() {
            Ok(unsuited) => Ok(Completion::ignored_with(unsuited.0)),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}
