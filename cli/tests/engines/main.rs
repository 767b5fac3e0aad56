//! The command on real engines: each test runs on all engines that TEST_BACKENDS names. For
//! Kubernetes, that is the cluster of the kubeconfig, with `TEST_REGISTRY` if its nodes do not
//! share this host's Docker engine.
//!
//! This binary is also the program for `fiber run`: with a scenario in its environment, it plays
//! that.

#[path = "../../../tests/programs/command.rs"]
mod command;
#[path = "../../../tests/programs/docker.rs"]
mod docker;
mod engine;
#[path = "../../../tests/programs/gpus.rs"]
#[allow(dead_code)]
mod gpus;
mod images;
mod input;
#[path = "../../../tests/programs/kubeconfig.rs"]
mod kubeconfig;
#[path = "../../../tests/programs/kubectl.rs"]
mod kubectl;
mod maps;
#[path = "../../../examples/persistent.rs"]
mod persistent;
mod pods;
#[path = "../../../tests/programs/pods.rs"]
mod processes;
#[path = "../../../tests/programs/program.rs"]
#[allow(dead_code)]
mod program;
mod registry;
mod restarts;
mod runs;
mod scenarios;
mod sessions;
#[path = "../../../tests/programs/tasks.rs"]
mod tasks;
mod volumes;
#[path = "../../../tests/programs/wait.rs"]
#[allow(dead_code)]
mod wait;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use self::engine::Engine;

fn main() -> ExitCode {
    if processes::kill_if_asked() {
        return ExitCode::SUCCESS;
    }
    if let Ok(scenario) = std::env::var(program::SCENARIO) {
        return scenarios::run(&scenario);
    }
    let topics = [
        ("images", images::TESTS),
        ("input", input::TESTS),
        ("maps", maps::TESTS),
        ("pods", pods::TESTS),
        ("registry", registry::TESTS),
        ("restarts", restarts::TESTS),
        ("runs", runs::TESTS),
        ("sessions", sessions::TESTS),
        ("volumes", volumes::TESTS),
    ];
    let named = std::env::var("TEST_BACKENDS").unwrap_or_default();
    let asked = |engine: &dyn Engine| named.split(',').any(|name| name.trim() == engine.name());
    let registry = registry::is_there();
    if !registry {
        eprintln!("SKIPPED: images in a registry; Debian's package docker-registry has one");
    }
    let mut trials = Vec::new();
    for engine in engine::ALL {
        let asked = asked(engine);
        if asked {
            engine.set_up();
        } else {
            eprintln!("SKIPPED: the command on {0}; TEST_BACKENDS={0} asks for it", engine.name());
        }
        for (topic, tests) in topics {
            if topic == "pods" && engine.name() != "kubernetes" {
                continue;
            }
            let ignored = !asked || topic == "registry" && !registry;
            for (name, test) in tests {
                let run = move || {
                    test(engine);
                    Ok(())
                };
                trials.push(
                    Trial::test(format!("{}::{topic}::{name}", engine.name()), run)
                        .with_ignored_flag(ignored),
                );
            }
        }
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    engine::ALL.iter().filter(|engine| asked(**engine)).for_each(|engine| engine.tear_down());
    conclusion.exit_code()
}

/// The tests of a topic by name.
type Tests = &'static [(&'static str, fn(&'static dyn Engine))];

/// Lists the tests of a topic.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: $crate::Tests = &[$((stringify!($test), $test)),+];
    };
}
use tests;
