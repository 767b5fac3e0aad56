//! Errors of the command line and the cluster.

use std::os::unix::fs::symlink;
use std::path::Path;

use fiber_test_support::program::{Setup, fails};
use fiber_test_support::trial;

use super::session::StartedSession;
use super::{fiber, run};
use crate::cluster::SYSTEM;

#[trial]
fn missing_commands_of_the_batch_system_are_named() {
    // Tests start the command by `env`.
    let path = tempfile::tempdir().expect("there is room");
    symlink("/usr/bin/env", path.path().join("env")).expect("it can be linked");
    let command = |arguments: &[&str]| {
        Setup::with_executable("", Path::new(env!("CARGO_BIN_EXE_fiber")))
            .env("FIBER_BACKEND", SYSTEM.backend)
            .env("PATH", path.path())
            .args(arguments)
    };
    fails(command(&["run", "/bin/true"]), 125, SYSTEM.no_commands);
    fails(command(&["ps", "--backend", SYSTEM.backend]), 1, SYSTEM.no_commands);
}

#[trial]
fn requests_that_the_cluster_does_not_have_are_refused() {
    let refused = StartedSession::under(super::session::own_name());
    for (options, words) in SYSTEM.refused {
        let name = ["--name", &refused.name];
        let name = if options.contains(&"--name") { &[][..] } else { &name };
        fails(fiber(&[&["run"], name, *options, &["/bin/true"]].concat()), 125, words);
    }
    // Nothing of them is queued.
    assert_eq!((SYSTEM.job)(&refused.name), None);
}

#[trial]
fn options_of_other_backends_are_refused() {
    for (options, words) in SYSTEM.foreign {
        fails(fiber(&[&["run"], *options, &["/bin/true"]].concat()), 125, words);
    }
    let (option, words) = SYSTEM.own;
    let local = [&["run", "--backend", "local"], option, &["/bin/true"]].concat();
    fails(fiber(&local), 125, words);
    fails(fiber(&["cp", "/etc/hosts", "claim:/"]), 1, &["cluster has no volumes"]);
    fails(fiber(&["run", "/no/such/program"]), 127, &["there is no program"]);
}

#[trial]
fn a_name_that_is_taken_is_refused() {
    let started = StartedSession::new(&[SYSTEM.hold], "ready");
    let words = [&format!("a job `{}` exists already", started.name), "fiber kill"];
    fails(run(&["--name", &started.name], "ready"), 125, &words);

    // Its output stands, and `fiber kill` would remove both.
    let ended = StartedSession::new(&[], "exit 3");
    fiber(&["wait", &ended.name]).run().code(3);
    let output = ended.record().display().to_string();
    let kill = format!("`fiber kill {}`", ended.name);
    fails(run(&["--name", &ended.name], "exit 0"), 125, &[&output, &kill]);
    fiber(&["kill", &ended.name]).run().code(0);
    run(&["-a", "--name", &ended.name], "exit 0").run().code(0);
}
