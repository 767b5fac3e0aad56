//! Tests of programs whose processes are pods, on a real Kubernetes cluster.
//!
//! `TEST_BACKENDS=kubernetes` enables them, and then requires a cluster: the one of `make
//! test-cluster`, or any other in the kubeconfig, with `TEST_REGISTRY` if its nodes do not share
//! this host's Docker engine. Some tests change nodes or stop the API server, where they can: use a
//! cluster for tests only. `.config/nextest.toml` lets these run alone.

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

use fiber_test_support::kubectl::try_kubectl;
use fiber_test_support::{Test, is_there, run_scenario, tests};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    run_scenario(|| {}).unwrap_or_else(run_all)
}

fn run_all() -> ExitCode {
    let asked = is_there("kubernetes", || try_kubectl(&["get", "pods"]));
    let trial =
        |test: &'static Test| Trial::test(test.path(), || run(test)).with_ignored_flag(!asked);
    let trials = tests().into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The reason why a test can't run on this cluster.
struct Unsuited(&'static str);

/// Skips a test that can't run on this cluster.
fn skip(why: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(Unsuited(why)))
}

fn run(test: &Test) -> Result<(), Failed> {
    if let Err(panic) = std::panic::catch_unwind(|| test.run()) {
        match panic.downcast::<Unsuited>() {
            Ok(unsuited) => eprintln!("skipped: {}", unsuited.0),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(())
}
