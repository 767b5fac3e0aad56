//! The command on real engines: each test runs on all engines that TEST_BACKENDS names. For
//! Kubernetes, that is the cluster of the kubeconfig, with `TEST_REGISTRY` if its nodes do not
//! share this host's Docker engine.
//!
//! This binary is also the program for `fiber run`: with a scenario in its environment, it plays
//! that.

mod containers;
mod engine;
mod images;
mod input;
mod maps;
#[path = "../../../examples/persistent.rs"]
mod persistent;
mod pods;
mod registry;
mod restarts;
mod runs;
mod scenarios;
mod sessions;
mod volumes;

use std::process::ExitCode;

use fiber_test_support::{init, inventory, is_asked, processes, run_scenario, runs, topic};
use libtest_mimic::{Arguments, Trial};

use self::engine::Engine;

/// A test that runs on each engine.
struct Test {
    module: &'static str,
    name: &'static str,
    run: fn(&'static dyn Engine),
}

inventory::collect!(Test);

impl Test {
    const fn new(module: &'static str, name: &'static str, run: fn(&'static dyn Engine)) -> Test {
        Test { module, name, run }
    }
}

fn main() -> ExitCode {
    if processes::kill_if_asked() {
        return ExitCode::SUCCESS;
    }
    run_scenario(init).unwrap_or_else(run_all)
}

fn run_all() -> ExitCode {
    let registry = registry::is_there();
    if !registry {
        eprintln!("SKIPPED: images in a registry; Debian's package docker-registry has one");
    }
    let mut tests: Vec<_> = inventory::iter::<Test>().collect();
    tests.sort_by_key(|test| (test.module, test.name));
    let mut trials = Vec::new();
    for engine in engine::ALL {
        let asked = is_asked(engine.name());
        if asked && runs(engine.name()) {
            engine.set_up();
        } else if !asked {
            eprintln!("SKIPPED: the command on {0}; TEST_BACKENDS={0} asks for it", engine.name());
        }
        for test in &tests {
            let topic = topic(test.module);
            let only = match topic {
                "containers" => "docker",
                "pods" => "kubernetes",
                _ => engine.name(),
            };
            if engine.name() != only {
                continue;
            }
            let run = || {
                (test.run)(engine);
                Ok(())
            };
            let path = format!("{}::{topic}::{}", engine.name(), test.name);
            let ignored = !asked || topic == "registry" && !registry;
            trials.push(Trial::test(path, run).with_ignored_flag(ignored));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
