//! The machines, and programs on them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use fiber_test_support::program::{Program, Setup, command_line, pid};
use fiber_test_support::wait::wait_until;

/// Returns ssh's configuration for the machines.
pub(crate) fn ssh_config() -> OsString {
    std::env::var_os("TEST_SSH_CONFIG").expect("TEST_SSH_CONFIG names ssh's configuration")
}

/// Returns the name of a machine that does not answer, if there is one.
pub(crate) fn answer() -> Result<(), String> {
    let silent = ["a", "b", "c"].into_iter().find(|machine| ssh(machine, "true").is_none());
    silent.map_or(Ok(()), |machine| Err(format!("the machine `{machine}` is silent")))
}

/// Returns what a command prints on a machine, if it succeeds.
pub(crate) fn ssh(machine: &str, command: &str) -> Option<String> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(ssh_config()).args(["-o", "BatchMode=yes", machine, command]);
    let ended = ssh.output().expect("there is ssh");
    ended.status.success().then(|| String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// Returns a program that plays a scenario on these machines.
pub(crate) fn program(scenario: &str, hosts: &str) -> Setup {
    on_machines(Setup::new(scenario), hosts)
}

pub(crate) fn on_machines(setup: Setup, hosts: &str) -> Setup {
    setup
        .env("FIBER_BACKEND", "ssh")
        .env("FIBER_SSH_CONFIG", ssh_config())
        .env("FIBER_SSH_HOSTS", hosts)
        .env("FIBER_ENVIRONMENT", "SCENARIO,SCENARIO_MARK")
}

/// The directory of a machine's builds.
pub(crate) fn builds(machine: &str) -> PathBuf {
    let state = PathBuf::from(ssh_config());
    let state = state.parent().expect("it is in a directory");
    state.join("caches").join(machine).join(own_builds())
}

/// The place of this user's builds in a cache.
pub(crate) fn own_builds() -> String {
    format!("fiber-{}/builds", rustix::process::geteuid().as_raw())
}

/// Returns the processes of a program that run on a machine.
pub(crate) fn processes_on(program: &Program, machine: &str) -> Vec<u32> {
    let builds = builds(machine);
    let runs = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path.starts_with(&builds))
    };
    program.processes().into_iter().filter(runs).collect()
}

/// The cut wire of a machine, which is mended when this is dropped.
pub(crate) struct Cut(&'static str);

impl Cut {
    pub(crate) fn of(machine: &'static str) -> Cut {
        link(machine, "down");
        Cut(machine)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        link(self.0, "up");
        wait_until("the machine answers again", || ssh(self.0, "true").is_some());
    }
}

fn link(machine: &str, state: &str) {
    let interface = format!("fib-ssh-{machine}");
    let set = Command::new("ip").args(["link", "set", &interface, state]).status();
    assert!(set.expect("there is ip").success(), "the wire of `{machine}` can't be cut");
}

/// Kills the sshd of a machine, with the processes of its sessions but none that they started, and
/// starts another one when this is dropped.
pub(crate) struct NoSshd(&'static str);

impl NoSshd {
    pub(crate) fn on(machine: &'static str) -> NoSshd {
        let namespace = format!("fib-ssh-{machine}");
        let pids = Command::new("ip").args(["netns", "pids", &namespace]).output();
        let pids = String::from_utf8_lossy(&pids.expect("there is ip").stdout).into_owned();
        for daemon in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            // `a` has others.
            let of = format!("/run/{machine}.conf");
            let line = String::from_utf8_lossy(&command_line(daemon)).into_owned();
            if line.starts_with("sshd: root") || line.contains(&of) {
                // It may have ended with another one.
                let _ = rustix::process::kill_process(pid(daemon), rustix::process::Signal::KILL);
            }
        }
        NoSshd(machine)
    }
}

impl Drop for NoSshd {
    fn drop(&mut self) {
        let config = PathBuf::from(ssh_config());
        let start = config.with_file_name("run").join(self.0);
        let started = Command::new(Path::new(&start)).status().expect("ssh-up.sh has written it");
        assert!(started.success());
        wait_until("the machine answers again", || ssh(self.0, "true").is_some());
    }
}
