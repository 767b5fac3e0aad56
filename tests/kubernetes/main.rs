//! Tests of programs whose processes are pods, on a real Kubernetes cluster.
//!
//! `TEST_BACKENDS=kubernetes` enables them, and then requires a cluster: the one of `make
//! test-cluster`, or any other in the kubeconfig, with `TEST_REGISTRY` if its nodes do not share
//! this host's Docker engine. Some tests change nodes or stop the API server, where they can: use a
//! cluster for tests only.

mod chaos;
mod cluster;
#[path = "../programs/command.rs"]
mod command;
#[path = "../programs/gpus.rs"]
mod gpus;
#[path = "../programs/hosted.rs"]
mod hosted;
mod hosts;
mod input;
mod inside;
#[path = "../programs/kubeconfig.rs"]
mod kubeconfig;
#[path = "../programs/kubectl.rs"]
mod kubectl;
mod lives;
mod network;
mod node;
#[path = "../programs/program.rs"]
#[allow(dead_code)]
mod program;
mod proxy;
mod resources;
#[path = "../docker/scenarios.rs"]
mod scenarios;
#[path = "../programs/tasks.rs"]
mod tasks;
#[path = "../programs/wait.rs"]
mod wait;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Read-locked by tests that run beside others, write-locked by those that disturb the whole
/// cluster.
static CLUSTER: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(program::SCENARIO) {
        scenarios::run(&scenario);
        return ExitCode::SUCCESS;
    }
    let asked = std::env::var("TEST_BACKENDS")
        .is_ok_and(|names| names.split(',').any(|name| name.trim() == "kubernetes"));
    if asked {
        cluster::must_answer();
    } else {
        eprintln!(
            "SKIPPED: tests on Kubernetes; TEST_BACKENDS=kubernetes enables them, and requires a \
             cluster"
        );
    }
    let topics = [
        ("chaos", chaos::TESTS, Isolation::Alone),
        ("hosts", hosts::TESTS, Isolation::BesideOthers),
        ("input", input::TESTS, Isolation::BesideOthers),
        ("inside", inside::TESTS, Isolation::BesideOthers),
        ("lives", lives::TESTS, Isolation::BesideOthers),
        ("network", network::TESTS, Isolation::BesideOthers),
        ("node", node::TESTS, Isolation::Alone),
        ("resources", resources::TESTS, Isolation::BesideOthers),
    ];
    let trials = topics.into_iter().flat_map(|(topic, tests, manners)| {
        tests.iter().map(move |(name, test)| {
            let run = move || {
                let (_beside, _alone);
                match manners {
                    Isolation::BesideOthers => {
                        _beside = CLUSTER.read().unwrap_or_else(PoisonError::into_inner)
                    }
                    Isolation::Alone => {
                        _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner)
                    }
                }
                run(*test)
            };
            Trial::ignorable_test(format!("{topic}::{name}"), run).with_ignored_flag(!asked)
        })
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.collect());
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

fn run(test: fn()) -> Result<Completion, Failed> {
    match std::panic::catch_unwind(test) {
        Ok(()) => Ok(Completion::Completed),
        Err(panic) => match panic.downcast::<Unsuited>() {
            Ok(unsuited) => Ok(Completion::ignored_with(unsuited.0)),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// Whether the tests of a topic may run beside others.
#[derive(Clone, Copy)]
enum Isolation {
    BesideOthers,
    Alone,
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
