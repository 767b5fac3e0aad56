//! Programs whose processes are pods, on a real Kubernetes cluster.
//!
//! They are asked for by `TEST_BACKENDS=kubernetes`, and then there has to be a cluster: the one of
//! `make test-cluster`, or any that the kubeconfig names, with `TEST_REGISTRY` if its nodes do not
//! share this host's Docker engine. Some change nodes and some stop the API server, where they can:
//! it is to be a cluster for tests alone.

mod chaos;
mod cluster;
#[path = "../programs/command.rs"]
mod command;
#[path = "../programs/gpus.rs"]
mod gpus;
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

/// Held to read by tests that can run beside others, and to write by those that disturb all of the
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
            "SKIPPED: what pods promise; TEST_BACKENDS=kubernetes asks for it, and needs a cluster"
        );
    }
    let topics = [
        ("chaos", chaos::TESTS, Manners::Alone),
        ("input", input::TESTS, Manners::BesideOthers),
        ("inside", inside::TESTS, Manners::BesideOthers),
        ("lives", lives::TESTS, Manners::BesideOthers),
        ("network", network::TESTS, Manners::BesideOthers),
        ("node", node::TESTS, Manners::Alone),
        ("resources", resources::TESTS, Manners::BesideOthers),
    ];
    let trials = topics.into_iter().flat_map(|(topic, tests, manners)| {
        tests.iter().map(move |(name, test)| {
            let run = move || {
                let (_beside, _alone);
                match manners {
                    Manners::BesideOthers => {
                        _beside = CLUSTER.read().unwrap_or_else(PoisonError::into_inner)
                    }
                    Manners::Alone => {
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

/// Why a test does not suit this cluster.
struct Unsuited(&'static str);

/// Ends a test that does not suit this cluster.
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

/// What a topic's tests do to others.
#[derive(Clone, Copy)]
enum Manners {
    BesideOthers,
    Alone,
}

/// A topic's tests by their names.
type Tests = &'static [(&'static str, fn())];

/// Lists the tests of a topic.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: $crate::Tests = &[$((stringify!($test), $test)),+];
    };
}
use tests;
