//! Errors of the command line and the cluster.

use std::os::unix::fs::symlink;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

use crate::cluster::{fiber, run, slurm};
use crate::session::StartedSession;

#[track_caller]
fn fails(setup: Setup, code: i32, words: &[&str]) {
    let ending = setup.run().code(code);
    assert!(ending.errors.contains("error: "), "{}", ending.errors);
    for word in words {
        assert!(ending.errors.contains(word), "`{word}` is missing in: {}", ending.errors);
    }
}

#[trial]
fn no_commands_of_slurm() {
    let words = ["there is no command `scontrol` in PATH", "module load slurm"];
    // Tests start the command by `env`.
    let path = tempfile::tempdir().expect("there is room");
    symlink("/usr/bin/env", path.path().join("env")).expect("it can be linked");
    fails(fiber(&["run", "/bin/true"]).env("PATH", path.path()), 125, &words);
    fails(fiber(&["ps", "--backend", "slurm"]).env("PATH", path.path()), 1, &words);
    let down = fiber(&["clean"]).env("SLURM_CONF", "/no/such/file");
    fails(down, 1, &["Slurm can't be used"]);
}

#[trial]
fn requests_that_the_cluster_does_not_have() {
    let refused = |options: &[&str], words: &[&str]| {
        fails(fiber(&[&["run"], options, &["/bin/true"]].concat()), 125, words);
    };
    refused(&["--partition", "nope"], &["no partition `nope`", "main"]);
    refused(&["--nodes", "99"], &["--nodes 99 is more than the", "--partition"]);
    refused(&["--time", "5s"], &["too short", "--time 1m"]);
    refused(&["--partition", "brief", "--time", "2m"], &["--time 2m is more than the 1m"]);
    refused(&["--partition", "staff"], &["account", "--account"]);
    refused(&["--cpu", "999"], &["nodes"]);
    refused(&["--gpu", "99"], &["configuration is not available"]);
    refused(&["--slurm=--bogus=1"], &["unrecognized option '--bogus=1'"]);
    for array in ["--array=1-3", "-a1-3", "-Qa1-3"] {
        refused(&[&format!("--slurm={array}")], &["one head"]);
    }
    // Nothing of them is queued.
    let queued = slurm("squeue", &["--noheader", "--format", "%o"]);
    assert!(!queued.lines().any(|command| command.contains("/bin/true")), "{queued}");
}

#[trial]
fn options_of_other_backends() {
    fails(fiber(&["run", "--image", "x", "y"]), 125, &["--image is for containers"]);
    fails(fiber(&["run", "-v", "x", "/bin/true"]), 125, &["--volume is for containers"]);
    let local = fiber(&["run", "--backend", "local", "--nodes", "2", "/bin/true"]);
    fails(local, 125, &["--nodes is for Slurm", "--backend slurm"]);
    fails(fiber(&["cp", "/etc/hosts", "claim:/"]), 1, &["a Slurm cluster has no volumes"]);
    fails(fiber(&["run", "/no/such/program"]), 127, &["there is no program"]);
}

#[trial]
fn a_name_that_is_taken() {
    let started = StartedSession::new(&["--slurm=--begin=now+1hour"], "ready");
    let words = [&format!("a job `{}` exists already", started.name), "fiber kill"];
    fails(run(&["--name", &started.name], "ready"), 125, &words);
}
