//! Commands on sessions that wait, run or have ended.

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;
use serde_json::Value;

use super::fiber;
use super::session::{StartedSession, output};
use crate::cluster::SYSTEM;

#[trial]
fn a_session_is_seen_followed_asked_and_killed() {
    // Machines of several jobs are this one, so the way to the head has to find its own.
    let other = StartedSession::new(&[], "ready");
    let started = StartedSession::new(&[], "ready");
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready: 2");
    fiber(&["logs", "--follow", &other.name]).start().line("ready: 2");
    let listed = started.listed();
    let id = (SYSTEM.job)(&started.name).expect("it has a job");
    assert_eq!((&listed["state"], &listed["restarts"]), (&"running".into(), &0.into()));
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
    // The ways to the head have ended, and the job goes on.
    assert_eq!((SYSTEM.job)(&started.name), Some(id));

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
    assert_eq!(((SYSTEM.job)(&started.name), started.files()), (None, Vec::new()));
    assert_eq!(other.listed()["state"], "running");
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
    ended.can_not_be_asked("has ended (3");
    let listed = killed.listed();
    assert_eq!(listed["exit_code"], 137);
    assert!(listed["machine"].as_str().is_some_and(|host| host.starts_with('n')), "{listed:#}");

    let removed = output(fiber(&["clean", "--json"]));
    let removed: Vec<String> = serde_json::from_str(&removed).expect("it is a list");
    assert!(removed.contains(&ended.name) && removed.contains(&killed.name), "{removed:?}");
    assert!(!removed.contains(&lives.name), "{removed:?}");
    wait_until("they are gone", || ended.listed().is_null() && killed.listed().is_null());
    assert_ne!((SYSTEM.job)(&lives.name), None);
}

#[trial]
fn a_session_that_waits_says_why() {
    let started = StartedSession::new(&[SYSTEM.hold], "ready");
    let waits = started.wait_until("its reason", |session| !session["detail"].is_null());
    assert_eq!(waits["state"], "starting");
    let job = (SYSTEM.job)(&started.name).expect("it is queued");
    assert_eq!(waits["detail"], SYSTEM.held.replace("JOB", &job));
    started.can_not_be_asked(&format!("waits: {}", SYSTEM.held.replace("JOB", &job)));
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.error("");
    fiber(&["kill", &started.name]).run().code(0);
    following.end();
    assert!(started.listed().is_null());
}
