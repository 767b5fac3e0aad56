//! Commands on sessions that run or wait.

use fiber_test_support::trial;
use serde_json::Value;

use crate::cluster::{fiber, grid, job};
use crate::session::{StartedSession, output};

#[trial]
fn a_session_is_seen_followed_asked_and_killed() {
    // Hosts of several jobs are this machine, so the way to the head has to find its own.
    let other = StartedSession::new(&[], "ready");
    let started = StartedSession::new(&[], "ready");
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready: 2");
    fiber(&["logs", "--follow", &other.name]).start().line("ready: 2");
    let listed = started.listed();
    assert_eq!(listed["state"], "running", "{listed:#}");
    let id = job(&started.name).expect("it has a job");
    assert_eq!(listed["place"], format!("job {id}"), "{listed:#}");
    assert!(listed["machine"].as_str().is_some_and(|host| host.starts_with('n')), "{listed:#}");
    assert_eq!(output(fiber(&["logs", "--tail", "2", &started.name])).lines().count(), 2);

    let look = output(fiber(&["top", "--json", &started.name]));
    let look: Value = serde_json::from_str(&look).expect("it is JSON");
    let session = &look["sessions"][0];
    assert_eq!(session["name"], started.name.as_str(), "{look:#}");
    assert_eq!(session["pools"][0]["ready"], 2, "{session:#}");
    let table = output(fiber(&["top", "--once", &started.name]));
    assert!(table.contains("pool-1/worker-2") && table.contains("2/2"), "{table}");
    let stack = output(fiber(&["stack", &started.name]));
    assert!(stack.contains("fiber-runtime"), "{stack}");
    let worker = format!("{}/pool-1/worker-1", started.name);
    assert!(output(fiber(&["stack", &worker])).contains("fiber-runtime"));
    // The ways to the head have ended, and Grid Engine has not deleted the job.
    assert_eq!(job(&started.name), Some(id));

    let attach = || fiber(&["attach", "--from-start", &started.name]).in_a_terminal().start();
    let mut first = attach();
    first.line_with("ready: 2");
    first.say("q");
    first.end().code(0).says(&[&format!("Detached from {}, which goes on", started.name)]);
    let last = attach();
    last.line_with("ready: 2");

    fiber(&["kill", &started.name]).run().code(0).says(&[&format!("Killed {}", started.name)]);
    assert_ne!(last.end().exit_code(), Some(0));
    following.end();
    assert!(started.listed().is_null());
    assert_eq!(job(&started.name), None);
    assert_eq!(started.files(), [""; 0]);
    assert_eq!(other.listed()["state"], "running");
}

#[trial]
fn a_session_that_waits_says_why() {
    let held = StartedSession::new(&["--gridengine=-h"], "ready");
    let id = job(&held.name).expect("it is queued");
    let listed = held.listed();
    assert_eq!(
        (&listed["state"], listed["detail"].as_str()),
        (&"starting".into(), Some(&*format!("held: `qrls {id}` lets it start")))
    );
    fiber(&["kill", &held.name]).run().code(0);
    assert!(held.listed().is_null());

    // Nobody has so many slots, and `-w n` submits it all the same.
    let large = StartedSession::new(&["--slots", "998", "--gridengine=-w n"], "ready");
    let waits = large.wait_until("its reason", |session| !session["detail"].is_null());
    let detail = waits["detail"].as_str().expect("it has one");
    assert!(detail.contains("cannot run in PE"), "{detail}");
    fiber(&["kill", &large.name]).run().code(0);
}

#[trial]
fn a_session_in_an_error_state_says_why_and_how_to_go_on() {
    let directory = tempfile::tempdir().expect("there is room");
    let gone = directory.path().display().to_string();
    let started = StartedSession::new(&["--gridengine=-h"], "ready");
    let id = job(&started.name).expect("it is queued");
    grid("qalter", &["-o", &format!("{gone}/nowhere/x"), &id]);
    started.release();
    let failed = started.wait_until("the error", |session| {
        session["detail"].as_str().is_some_and(|detail| detail.starts_with("error state: "))
    });
    let detail = failed["detail"].as_str().expect("it has one");
    assert!(detail.contains("nowhere/x") && detail.contains(&format!("qmod -cj {id}")), "{detail}");
    fiber(&["kill", &started.name]).run().code(0);
    assert_eq!(job(&started.name), None);
}

#[trial]
fn a_suspended_session_is_paused_and_can_be_killed() {
    let started = StartedSession::new(&[], "ready");
    fiber(&["logs", "--follow", &started.name]).start().line("ready: 2");
    grid("qmod", &["-sj", &job(&started.name).expect("it has a job")]);
    started.wait_until("it is suspended", |session| session["state"] == "paused");
    fiber(&["kill", &started.name]).run().code(0);
    assert_eq!(job(&started.name), None);
}
