//! The cluster, seen through Slurm's own commands, and the command under test on it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fiber_test_support::command;
use fiber_test_support::program::{SCENARIO, Setup};
use tempfile::TempDir;

use crate::session::state;

/// The name of the backend.
pub(crate) const BACKEND: &str = "slurm";

/// Runs a command of Slurm.
pub(crate) fn slurm(name: &str, arguments: &[&str]) -> String {
    command::output(name, arguments, "")
        .unwrap_or_else(|problem| panic!("{name} {arguments:?}: {problem}"))
}

/// Exits with an error if there is no cluster.
pub(crate) fn must_answer() {
    if let Err(problem) = command::output("sinfo", &["--noheader"], "") {
        eprintln!("error: no Slurm cluster answers: {problem}; `make slurm-up` starts one");
        std::process::exit(1);
    }
}

/// Returns the command, in an empty directory.
pub(crate) fn fiber(arguments: &[&str]) -> Setup {
    Setup::with_executable("", Path::new(env!("CARGO_BIN_EXE_fiber")))
        .env("FIBER_BACKEND", "slurm")
        .env("XDG_STATE_HOME", state())
        .args(arguments)
}

/// Returns `fiber run` with this binary, which plays a scenario, on both cores of a node.
pub(crate) fn run(options: &[&str], scenario: &str) -> Setup {
    let own = std::env::current_exe().expect("this binary is somewhere");
    run_program(&own, options, scenario)
}

/// Works as [`run`], with a copy of this binary.
pub(crate) fn run_program(program: &Path, options: &[&str], scenario: &str) -> Setup {
    let program = program.display().to_string();
    let scenario = format!("{SCENARIO}={scenario}");
    // The job may outlive the command and its directories.
    let own_job = ["-e", "SCENARIO_MARK=job", "-e", "TMPDIR=/tmp", "--cpu", "2"];
    fiber(&[&["run", "-e", &scenario], &own_job[..], options, &[&program]].concat())
}

/// Returns a folder with a `squeue` that runs `line` before the real one, which is `$real`, and the
/// PATH in which it is the first.
pub(crate) fn squeue_with(line: &str) -> (TempDir, String) {
    let folder = TempDir::new().expect("there is room");
    let real = command::output("sh", &["-c", "command -v squeue"], "").expect("it is in PATH");
    let squeue = folder.path().join("squeue");
    fs::write(&squeue, format!("#!/bin/sh\nreal={real}\n{line}\n")).expect("there is room");
    fs::set_permissions(&squeue, Permissions::from_mode(0o755)).expect("it is there");
    let path = std::env::var("PATH").expect("it is set");
    let path = format!("{}:{path}", folder.path().display());
    (folder, path)
}

/// Returns the id of the live job of a session.
pub(crate) fn job(name: &str) -> Option<String> {
    let listed = slurm("squeue", &["--noheader", "--name", name, "--format", "%i"]);
    listed.lines().next().map(String::from)
}

/// Ends a job, if it still runs.
pub(crate) fn cancel(job: &str) {
    let _ = command::output("scancel", &[job], "");
}

/// Lets a job start that was submitted with `--hold`.
pub(crate) fn release(job: &str) {
    slurm("scontrol", &["release", job]);
}

/// Kills the head of a job, not through fiber.
pub(crate) fn lose(job: &str) {
    slurm("scancel", &["--signal=KILL", "--batch", job]);
}
