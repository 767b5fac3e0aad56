//! An engine that stops during work. The test runs an engine of its own beside the shared one.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fiber_test_support::docker::{docker, try_docker};
use fiber_test_support::program::Setup;
use fiber_test_support::wait::{wait_for_end, wait_until};
use fiber_test_support::{WARNINGS, trial};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::engine::{Network, program};

#[trial]
fn a_map_goes_on_without_its_engine() {
    let mut daemon = Daemon::start();
    let program = daemon.serve(program("work")).start();
    program.line("begun:");
    daemon.stop(Signal::KILL);
    // Children are linked to their parent without the engine, and end with it.
    program.end().code(0).says(&["right: true", "ready again: 4"]);
    // The engine removes what is left of containers when it is back.
    daemon.resume();
    wait_until("no container is left", || daemon.containers().is_empty());
}

#[trial]
fn a_map_waits_for_an_engine_that_is_started_again() {
    let mut daemon = Daemon::start();
    let program = daemon.serve(program("work")).env(WARNINGS, "1").start();
    program.line("begun:");
    // It ends its containers.
    daemon.stop(Signal::TERM);
    daemon.resume();
    let ended = program.end().code(0).says(&["right: true", "ready again: 4"]);
    let errors = ended.errors;
    assert_eq!(errors.matches("sends no events for now: ").count(), 1, "{errors}");
    wait_until("no container is left", || daemon.containers().is_empty());
}

#[trial]
fn the_end_of_an_engine_with_its_containers_is_reported() {
    let mut daemon = Daemon::start();
    let impatient = program("hopeless").env("FIBER_SCHEDULE_TIMEOUT", "2s");
    let program = daemon.serve(impatient).start();
    program.line("begun:");
    daemon.stop(Signal::TERM);
    let ending = program.end().code(0);
    ending.says(&["error: ", "no Docker engine answers at unix://"]);
}

/// A Docker engine of one test, whose containers use the host's network. Dropping this stops it.
struct Daemon {
    directory: TempDir,
    process: Option<Child>,
    /// An engine without its own bridge would take over that of the shared one.
    bridge: Network,
}

impl Daemon {
    fn start() -> Daemon {
        let directory = TempDir::new().expect("there is room for a directory");
        let mut daemon = Daemon { directory, process: None, bridge: Network::new() };
        daemon.resume();
        daemon
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.path("docker.sock").display())
    }

    fn serve(&self, setup: Setup) -> Setup {
        setup.env("DOCKER_HOST", self.host()).env("FIBER_DOCKER_NETWORK", "host")
    }

    fn docker(&self, arguments: &[&str]) -> Option<String> {
        try_docker(&[&["--host", &self.host()], arguments].concat()).ok()
    }

    fn containers(&self) -> String {
        self.docker(&["ps", "--all", "--quiet"]).expect("it answers")
    }

    /// Starts it, perhaps again, with the container runtime of the shared engine.
    fn resume(&mut self) {
        let runtime = docker(&["info", "--format", "{{.DefaultRuntime}}"]);
        let path = docker(&[
            "info",
            "--format",
            "{{range $name, $runtime := .Runtimes}}{{$name}}={{$runtime.Path}} {{end}}",
        ]);
        let option =
            path.split_whitespace().find(|option| option.starts_with(&format!("{runtime}=")));
        // A mount namespace, so its mounts end with it.
        let mut command = Command::new("unshare");
        command.args(["--mount", "dockerd", "--host"]).arg(self.host());
        for (option, name) in
            [("--data-root", "data"), ("--exec-root", "run"), ("--pidfile", "pid")]
        {
            command.arg(option).arg(self.path(name));
        }
        command.args(["--bridge", &self.bridge.interface, "--iptables=false"]);
        if let Some(option) = option.filter(|_| runtime != "runc") {
            command.args(["--add-runtime", option, "--default-runtime", &runtime]);
        }
        let log =
            std::fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().expect("the tests of containers need `dockerd`"));
        wait_until("it answers", || self.docker(&["version"]).is_some());
    }

    fn stop(&mut self, signal: Signal) {
        if let Some(mut process) = self.process.take() {
            kill_process(Pid::from_child(&process), signal).unwrap();
            wait_for_end(&mut process);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
    }
}
