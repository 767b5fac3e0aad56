//! Errors of the command line and the cluster.

use std::os::unix::fs::symlink;
use std::path::Path;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

use crate::cluster::{fiber, grid, run};
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
fn no_commands_of_grid_engine() {
    let words = ["there is no command `qconf`", "settings.sh"];
    // Tests start the command by `env`.
    let path = tempfile::tempdir().expect("there is room");
    symlink("/usr/bin/env", path.path().join("env")).expect("it can be linked");
    let command = |arguments: &[&str]| {
        Setup::with_executable("", Path::new(env!("CARGO_BIN_EXE_fiber")))
            .env("FIBER_BACKEND", "gridengine")
            .env("PATH", path.path())
            .args(arguments)
    };
    fails(command(&["run", "/bin/true"]), 125, &words);
    fails(command(&["ps", "--backend", "gridengine"]), 1, &words);
}

#[trial]
fn requests_that_the_cluster_does_not_have() {
    let refused = |options: &[&str], words: &[&str]| {
        fails(fiber(&[&["run"], options, &["/bin/true"]].concat()), 125, words);
    };
    refused(&[], &["name a parallel environment with --pe: one of fiber, loose, wide"]);
    refused(&["--pe", "nope"], &["no parallel environment `nope`", "one of fiber"]);
    let fiber = ["--pe", "fiber", "--slots"];
    refused(&[&fiber[..], &["3"]].concat(), &["--slots 3 never starts", "2 slots on each host"]);
    refused(&[&fiber[..], &["400"]].concat(), &["no suitable queues", "--slots"]);
    let two = |option: &[&'static str]| [&fiber[..], &["2"], option].concat();
    refused(&two(&["--queue", "nope"]), &["unknown queue", "qconf -sql"]);
    refused(&two(&["--project", "nope"]), &["project", "qconf -sprjl"]);
    refused(&two(&["--time", "0s"]), &["too short"]);
    refused(&two(&["--gridengine=-l nope=1"]), &["unknown resource", "qconf -sc"]);
    refused(&two(&["--gridengine=-bogus"]), &["-bogus"]);
    refused(&two(&["--gridengine=h_vmem=1G"]), &["is no option of qsub"]);
    refused(&two(&["--gridengine=-t 1-3"]), &["one head"]);
    refused(&two(&["--gridengine=-N x"]), &["--name"]);
    refused(&two(&["--gridengine=-sync y"]), &["--attach"]);
    refused(&two(&["--gridengine=-now y"]), &["fiber kill"]);
    refused(&two(&["--name", "1x"]), &["cannot start with a digit", "--name"]);
    refused(&two(&["--restarts", "1"]), &["--restarts"]);
    // Nothing of them is queued.
    let queued = grid("qstat", &["-u", "*"]);
    assert!(!queued.contains("fiber-"), "{queued}");
}

#[trial]
fn options_of_other_backends() {
    fails(fiber(&["run", "--image", "x", "y"]), 125, &["--image is for containers"]);
    fails(fiber(&["run", "--cpu", "2", "/bin/true"]), 125, &["--cpu is for containers", "--slots"]);
    let nodes = fiber(&["run", "--nodes", "2", "/bin/true"]);
    fails(nodes, 125, &["--nodes is for Slurm", "--backend slurm"]);
    let local = fiber(&["run", "--backend", "local", "--pe", "x", "/bin/true"]);
    fails(local, 125, &["--pe is for Grid Engine", "--backend gridengine"]);
    fails(fiber(&["cp", "/etc/hosts", "claim:/"]), 1, &["a Grid Engine cluster has no volumes"]);
    fails(fiber(&["run", "/no/such/program"]), 127, &["there is no program"]);
}

#[trial]
fn a_name_that_is_taken() {
    let started = StartedSession::new(&["--gridengine=-h"], "ready");
    let words = [&format!("a job `{}` exists already", started.name), "fiber kill"];
    fails(run(&["--name", &started.name], "ready"), 125, &words);
}
