//! Commands on sessions that run or have ended.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{StartedSession, fiber, job, output};
use crate::command;
use crate::wait::wait_until;

crate::tests![
    a_session_is_seen_followed_asked_and_killed,
    ends_are_waited_for_and_leftovers_removed,
    a_session_whose_record_is_gone_is_waited_for,
    a_session_that_waits_says_why,
];

fn a_session_is_seen_followed_asked_and_killed() {
    let started = StartedSession::new(&[], "ready");
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready: 2");
    following.line("a worker speaks");
    let listed = started.listed();
    assert_eq!((&listed["state"], &listed["restarts"]), (&"running".into(), &0.into()));
    // The job has one step, the host of its node. Another one takes its place.
    let host = |session: &Value| session["workers"][0]["name"].as_str().map(String::from);
    let first = host(&listed).expect("it has a host");
    assert!(first.starts_with(&format!("{}.", job(&started.name).expect("it has a job"))));
    fiber(&["kill", "--now", &first]).run().code(0).says(&[&first, &started.name]);
    started
        .wait_until("it was replaced", |session| host(session).is_some_and(|host| host != first));
    wait_until("its workers are ready", || {
        output(fiber(&["top", "--once", &started.name])).contains("2/2")
    });
    // The output of workers comes in its own time.
    following.line("a worker speaks");
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
}

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

    let removed = output(fiber(&["clean", "--json"]));
    let removed: Vec<String> = serde_json::from_str(&removed).expect("it is a list");
    assert!(removed.contains(&ended.name) && removed.contains(&killed.name), "{removed:?}");
    assert!(!removed.contains(&lives.name), "{removed:?}");
    wait_until("they are gone", || ended.listed().is_null() && killed.listed().is_null());
    assert_ne!(job(&lives.name), None);
}

fn a_session_whose_record_is_gone_is_waited_for() {
    let started = StartedSession::new(&[], "ready");
    let ready = fiber(&["logs", "--follow", &started.name]).start();
    ready.line("ready: 2");
    // Counts the questions about jobs.
    let folder = tempfile::tempdir().expect("there is room");
    let (asked, squeue) = (folder.path().join("asked"), folder.path().join("squeue"));
    let real = command::output("sh", &["-c", "command -v squeue"], "").expect("it is in PATH");
    let script = format!("#!/bin/sh\necho >>{}\nexec {real} \"$@\"\n", asked.display());
    fs::write(&squeue, script).expect("there is room");
    fs::set_permissions(&squeue, Permissions::from_mode(0o755)).expect("it is there");
    let path = std::env::var("PATH").expect("it is set");
    let waiting = fiber(&["wait", &started.name])
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .start();
    wait_until("the session was found, and looked at once more", || {
        fs::read(&asked).is_ok_and(|asked| asked.len() >= 4)
    });
    // `fiber kill` removes it, too, at the end.
    fs::remove_file(started.record()).expect("it is there");
    fiber(&["kill", "--now", &started.name]).run().code(0);
    // Slurm reports the signal if the program has ended before the job is cancelled.
    let code = waiting.end().exit_code().expect("it ends by itself");
    assert!([Signal::KILL, Signal::TERM].map(|signal| 128 + signal.as_raw()).contains(&code));
    ready.end();
}

fn a_session_that_waits_says_why() {
    let started = StartedSession::new(&["--slurm=--begin=now+1hour"], "ready");
    let waits = started.wait_until("its reason", |session| !session["detail"].is_null());
    assert_eq!(waits["state"], "starting");
    assert_eq!(waits["detail"], "BeginTime: it may start later");
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.error("");
    fiber(&["kill", &started.name]).run().code(0);
    following.end();
    assert!(started.listed().is_null());
}
