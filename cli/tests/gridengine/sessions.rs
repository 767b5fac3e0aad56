//! Commands on sessions of Grid Engine alone.

use std::path::Path;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

use crate::batch::fiber;
use crate::batch::session::{StartedSession, state};
use crate::cluster::{SYSTEM, enter, grid};

#[trial]
fn a_session_that_waits_for_slots_says_so() {
    // Nobody has so many slots, and `-w n` submits it all the same.
    let options = ["--pe", "fiber", "--slots", "998", "--gridengine=-w n"];
    let large = StartedSession::new(&options, "ready");
    let waits = large.wait_until("its reason", |session| !session["detail"].is_null());
    let detail = waits["detail"].as_str().expect("it has one");
    assert!(detail.contains("cannot run in PE"), "{detail}");
    fiber(&["kill", &large.name]).run().code(0);
}

#[trial]
fn nobody_else_sees_the_environment_of_a_session() {
    let started = StartedSession::new(&["--gridengine=-h", "--env", "GIVEN=away"], "ready");
    let shown = grid("qstat", &["-j", &(SYSTEM.job)(&started.name).expect("it is queued")]);
    assert!(shown.contains(&started.name), "{shown}");
    assert!(!shown.contains("GIVEN") && !shown.contains("HOME="), "{shown}");
    fiber(&["kill", &started.name]).run().code(0);
}

#[trial]
fn a_session_in_an_error_state_says_why_and_how_to_go_on() {
    let directory = tempfile::tempdir().expect("there is room");
    let gone = directory.path().display().to_string();
    let started = StartedSession::new(&["--gridengine=-h"], "ready");
    let id = (SYSTEM.job)(&started.name).expect("it is queued");
    grid("qalter", &["-o", &format!("{gone}/nowhere/x"), &id]);
    started.release();
    let failed = started.wait_until("the error", |session| {
        session["detail"].as_str().is_some_and(|detail| detail.starts_with("error state: "))
    });
    let detail = failed["detail"].as_str().expect("it has one");
    assert!(detail.contains("nowhere/x") && detail.contains(&format!("qmod -cj {id}")), "{detail}");
    fiber(&["kill", &started.name]).run().code(0);
    assert_eq!((SYSTEM.job)(&started.name), None);
}

#[trial]
fn a_suspended_session_is_paused_and_can_be_killed() {
    let started = StartedSession::new(&[], "ready");
    fiber(&["logs", "--follow", &started.name]).start().line("ready: 2");
    let job = (SYSTEM.job)(&started.name).expect("it has a job");
    grid("qmod", &["-sj", &job]);
    let listed = started.wait_until("it is suspended", |session| session["state"] == "paused");
    assert_eq!(listed["detail"], format!("qmod -usj {job}"));
    started.can_not_be_asked(&format!("is paused: `qmod -usj {job}` lets it go on"));
    fiber(&["kill", &started.name]).run().code(0);
    assert_eq!((SYSTEM.job)(&started.name), None);
}

#[trial]
fn looks_one_after_another_share_the_one_slot_that_is_left_for_tasks() {
    // The host of the head has two slots, and the job's script takes one.
    let started = StartedSession::new(&["--pe", "first", "--slots", "2"], "ready");
    fiber(&["logs", "--follow", &started.name]).start().line("ready: 2");
    for _ in 0..3 {
        fiber(&["top", "--once", &started.name]).run().code(0);
        fiber(&["stack", &started.name]).run().code(0);
    }
}

#[trial]
fn output_can_be_read_while_the_qmaster_does_not_answer() {
    let started = StartedSession::new(&[], "ready");
    fiber(&["logs", "--follow", &started.name]).start().line("ready: 2");
    // No daemon listens at this port.
    let command = ["head", "env", "SGE_QMASTER_PORT=1", env!("CARGO_BIN_EXE_fiber")];
    let ending = Setup::with_executable("", Path::new(&enter()))
        .env("FIBER_BACKEND", SYSTEM.backend)
        .env("XDG_STATE_HOME", state())
        .args(&[&command[..], &["logs", &started.name]].concat())
        .run()
        .code(0)
        .says(&["ready: 2"]);
    assert!(ending.errors.contains("the output of"), "{}", ending.errors);
    fiber(&["kill", &started.name]).run().code(0);
}
