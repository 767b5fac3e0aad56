//! Commands of Slurm that do what the real ones can't be made to do: hang, lie, forget jobs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use fiber_test_support::command::output;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use tempfile::TempDir;

use crate::batch::{Batch, line};
use crate::shared_pilots::{live, run};

/// Makes a stub of a command, whose script ends with the real one, `$real`, unless it exits before.
/// Returns its directory, and the variable with which programs find it.
fn stub(command: &str, script: &str) -> (TempDir, String) {
    let directory = TempDir::new().expect("a directory can be created");
    let stub = directory.path().join(command);
    let real = output("sh", &["-c", &format!("command -v {command}")], "").expect("it exists");
    let text = format!("#!/bin/sh\nreal={real}\n{script}\nexec $real \"$@\"\n");
    fs::write(&stub, text).expect("there is room");
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = std::env::var("PATH").expect("it is set");
    let path = format!("PATH={}:{path}", directory.path().display());
    (directory, path)
}

/// Runs the program `pi` with pilots and with a stub.
fn pi_with(command: &str, script: &str) -> Result<String, String> {
    let (directory, path) = stub(command, script);
    let files = directory.path().join("files");
    let result = run("pi", &files, &[&path]);
    wait_until("the end of its pilots", || live(&files) == 0);
    result
}

#[trial]
fn forgotten_jobs_go_on() {
    let script =
        "n=$(cat ${0}.n 2>/dev/null || echo 0); echo $((n + 1)) >${0}.n\n[ $n -ge 3 ] || exit 0";
    assert_eq!(pi_with("squeue", script).as_deref(), Ok("pi: 3.14"));
}

#[trial]
fn a_queue_that_hangs_is_not_needed() {
    assert_eq!(pi_with("squeue", "exec sleep 60").as_deref(), Ok("pi: 3.14"));
}

#[trial]
fn an_answer_without_a_job_is_an_error() {
    let error = pi_with("sbatch", "echo Submitted something; exit 0").expect_err("there is no job");
    assert!(error.contains("`sbatch` failed: it names no job: \"Submitted something\""), "{error}");
}

/// As one on a node that can't be reached: fiber cancels its step, and kills it in the end.
#[trial]
fn an_srun_that_does_not_end_is_killed() {
    let (_directory, path) = stub("srun", "trap '' TERM; $real \"$@\"; sleep 600; exit");
    let out = Batch::submit(&[], &format!("{path} {}", line("kills"))).succeeds();
    assert_eq!(out, "killed: Signal(9)\nnext: 2\n");
}
