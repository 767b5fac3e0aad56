//! Ends of sessions, and what is left of them.

use std::path::Path;

use fiber_test_support::trial;

use crate::batch::session::{StartedSession, own_name};
use crate::batch::{fiber, run_program};
use crate::cluster::{SYSTEM, grid};

/// Starts a session of a shell.
#[track_caller]
fn shell(options: &[&str], program: &str) -> StartedSession {
    let mut session = StartedSession::under(own_name());
    let options = [&["--name", &session.name], options].concat();
    let setup = run_program(Path::new("/bin/sh"), &options, "").args(&["-c", program]);
    session.directory = Some(setup.run().code(0));
    session
}

#[trial]
fn a_deleted_session_ends_in_order_and_says_so() {
    let program = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let started = shell(&[], program);
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready");
    grid("qdel", &[&(SYSTEM.job)(&started.name).expect("it has a job")]);
    following.line("got TERM");
    following.end();
    fiber(&["wait", &started.name]).run().code(143);
    let shown = started.listed();
    assert_eq!((&shown["exit_code"], &shown["detail"]), (&143.into(), &"cancelled".into()));

    let waits = StartedSession::new(&["--gridengine=-h"], "ready");
    grid("qdel", &[&(SYSTEM.job)(&waits.name).expect("it is queued")]);
    fiber(&["wait", &waits.name]).run().code(143);
}

#[trial]
fn a_session_beyond_its_time_limit_says_so() {
    let started = shell(&["--time", "2s"], "echo ready; while :; do sleep 0.1; done");
    fiber(&["wait", &started.name]).run().code(143);
    let shown = started.listed();
    assert_eq!((&shown["exit_code"], &shown["detail"]), (&143.into(), &"its time limit".into()));
}

#[trial]
fn a_head_that_does_not_end_is_killed_after_its_grace_period() {
    let started = shell(&[], "trap '' TERM; echo ready; while :; do sleep 0.1; done");
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready");
    fiber(&["kill", "--now", &started.name]).run().code(0);
    following.end();
    assert_eq!(((SYSTEM.job)(&started.name), started.files()), (None, Vec::new()));
}
