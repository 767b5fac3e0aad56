//! Programs whose processes are containers, and their containers on the engine.

use std::sync::atomic::{AtomicU32, Ordering};

use fiber_test_support::docker::{docker, try_docker};
use fiber_test_support::program::{Program, Setup};
use fiber_test_support::wait::wait_until;

/// Returns a program that plays a scenario with containers as processes.
pub(crate) fn program(scenario: &str) -> Setup {
    in_docker(Setup::new(scenario))
}

/// Lets a program use containers as processes.
pub(crate) fn in_docker(setup: Setup) -> Setup {
    setup.env("FIBER_BACKEND", "docker").env("FIBER_ENVIRONMENT", "SCENARIO,SCENARIO_MARK")
}

/// Returns the ids of all containers that a process has created.
pub(crate) fn containers(program: u32) -> Vec<String> {
    let owner = format!("process {program} ");
    let list = docker(&[
        "ps",
        "-a",
        "--no-trunc",
        "--filter",
        "label=fiber.owner",
        "--format",
        "{{.ID}} {{.Label \"fiber.owner\"}}",
    ]);
    let owned = list
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, label)| label.starts_with(&owner));
    owned.map(|(id, _)| id.to_string()).collect()
}

/// Waits for the program's end, after which none of its containers may be left.
pub(crate) fn leaves_nothing(program: Program) -> fiber_test_support::program::ProgramOutput {
    let pid = program.pid();
    let ending = program.end();
    wait_until("no container is left", || containers(pid).is_empty());
    ending
}

pub(crate) fn inspect(container: &str, what: &str) -> String {
    docker(&["inspect", "--format", what, container])
}

/// A network of one test. Dropping this removes it.
pub(crate) struct Network {
    pub(crate) name: String,
    /// The host's network interface for it.
    pub(crate) interface: String,
}

impl Network {
    pub(crate) fn new() -> Network {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (name, interface) =
            (format!("fiber-test-{process}-{number}"), format!("ft{process}-{number}"));
        let option = format!("com.docker.network.bridge.name={interface}");
        docker(&["network", "create", "--opt", &option, &name]);
        Network { name, interface }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(problem) = try_docker(&["network", "rm", &self.name]) {
            eprintln!("the network {} stays behind: {problem}", self.name);
        }
    }
}
