//! The engine as its own command line shows it: what containers there are, and what is done to them.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::program::{Program, Setup};

/// How long anything may take that is to happen at all.
const LONG: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// What `docker` prints, or what it complains about.
pub(crate) fn try_docker(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(arguments).output().expect("the command `docker` is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[track_caller]
pub(crate) fn docker(arguments: &[&str]) -> String {
    try_docker(arguments).unwrap_or_else(|problem| panic!("docker {}: {problem}", arguments.join(" ")))
}

pub(crate) fn must_answer() {
    if let Err(problem) = try_docker(&["version", "--format", "{{.Server.Version}}"]) {
        eprintln!("error: TEST_BACKENDS names docker, but no engine answers (`make cluster-up` starts one): {problem}");
        std::process::exit(1);
    }
}

/// A program of this scenario whose processes are containers.
pub(crate) fn program(scenario: &str) -> Setup {
    in_docker(Setup::new(scenario))
}

/// The same for any program.
pub(crate) fn in_docker(setup: Setup) -> Setup {
    setup.env("FIBER_BACKEND", "docker").env("FIBER_ENVIRONMENT", "SCENARIO,SCENARIO_MARK")
}

/// The ids of the containers that a process has made and that are there.
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
    let owned = list.lines().filter_map(|line| line.split_once(' ')).filter(|(_, label)| label.starts_with(&owner));
    owned.map(|(id, _)| id.to_string()).collect()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}: it did not come to that");
        std::thread::sleep(LOOK);
    }
}

/// Ends the program in order, after which none of its containers is there.
pub(crate) fn leaves_nothing(program: Program) -> crate::program::Ending {
    let pid = program.pid();
    let ending = program.end();
    wait_until("no container is left", || containers(pid).is_empty());
    ending
}

pub(crate) fn inspect(container: &str, what: &str) -> String {
    docker(&["inspect", "--format", what, container])
}

/// A network of a test's own. It goes with this.
pub(crate) struct Network {
    pub(crate) name: String,
    /// What this host has for it.
    pub(crate) interface: String,
}

impl Network {
    pub(crate) fn new() -> Network {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (name, interface) = (format!("fiber-test-{process}-{number}"), format!("ft{process}-{number}"));
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
