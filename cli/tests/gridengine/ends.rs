//! Ends of sessions, and what is left of them.

use std::path::Path;

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use crate::cluster::{fiber, grid, job, run_program};
use crate::session::{StartedSession, output, own_name};

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
fn ends_are_waited_for_and_leftovers_removed() {
    let (ended, killed, lives) = (
        StartedSession::new(&[], "exit 3"),
        StartedSession::new(&[], "ready"),
        StartedSession::new(&[], "ready"),
    );
    let late = fiber(&["wait", "--timeout", "1s", &lives.name]).run().code(124);
    assert!(late.errors.contains("no end within 1s"), "{}", late.errors);
    let both = fiber(&["wait", &killed.name, &ended.name]).start();
    both.line(&format!("{} ended with exit code 3", ended.name));
    let ready = fiber(&["logs", "--follow", &killed.name]).start();
    ready.line("ready: 2");
    killed.lose();
    both.end().code(128 + Signal::KILL.as_raw());
    ready.end();
    let shown = ended.listed();
    assert_eq!((&shown["state"], &shown["exit_code"]), (&"ended".into(), &3.into()), "{shown:#}");
    assert_eq!(killed.listed()["exit_code"], 137);

    let removed = output(fiber(&["clean", "--json"]));
    let removed: Vec<String> = serde_json::from_str(&removed).expect("it is a list");
    assert!(removed.contains(&ended.name) && removed.contains(&killed.name), "{removed:?}");
    assert!(!removed.contains(&lives.name), "{removed:?}");
    wait_until("they are gone", || ended.listed().is_null() && killed.listed().is_null());
    assert_ne!(job(&lives.name), None);
}

#[trial]
fn a_deleted_session_ends_in_order_and_says_so() {
    let program = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let started = shell(&[], program);
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready");
    grid("qdel", &[&job(&started.name).expect("it has a job")]);
    following.line("got TERM");
    following.end();
    fiber(&["wait", &started.name]).run().code(143);
    let shown = started.listed();
    assert_eq!((&shown["exit_code"], &shown["detail"]), (&143.into(), &"cancelled".into()));

    let waits = StartedSession::new(&["--gridengine=-h"], "ready");
    grid("qdel", &[&job(&waits.name).expect("it is queued")]);
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
    assert_eq!((job(&started.name), started.files()), (None, Vec::new()));
}

#[trial]
fn ctrl_c_at_an_attached_run_ends_the_session() {
    let name = own_name();
    let attached = crate::cluster::run(&["-a", "--name", &name], "ready").start();
    attached.line("ready: 2");
    attached.signal(Signal::INT);
    attached.end().code(128 + Signal::INT.as_raw());
    let session = StartedSession::under(name);
    assert_eq!((job(&session.name), session.files()), (None, Vec::new()));
}
