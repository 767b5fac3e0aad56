//! `fiber run --restarts`, `fiber attach` and `fiber wait`.

use fiber_test_support::program::Program;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;

use crate::engine::{Engine, StartedSession, TestVolume, fiber, output, own_name, run};

/// Starts a program that is lost `losses` times in the middle of its work, and follows it.
pub(crate) fn resuming(
    engine: &'static dyn Engine,
    volume: &TestVolume,
    losses: u32,
) -> (StartedSession, Program) {
    let name = own_name("test");
    let restarts = losses.to_string();
    // Its tasks wait, so a program that is asked to end waits as long as it may.
    let grace = "FIBER_GRACE=1s";
    let options = ["--restarts", &restarts, "-v", &volume.name, "--name", &name, "-e", grace];
    let started = StartedSession::new(engine, &options, &format!("resumes {losses}"));
    let attached = fiber(engine, &["attach", "--from-start", &name]).start();
    attached.line("start 1");
    (started, attached)
}

#[trial]
fn a_lost_head_is_started_again_and_goes_on(engine: &'static dyn Engine) {
    let volume = TestVolume::new(engine);
    let (started, attached) = resuming(engine, &volume, 1);
    let waiting = fiber(engine, &["wait", &started.name]).start();
    attached.line("waits");
    // All commands find the head under the name of the session.
    assert!(output(fiber(engine, &["stack", &started.name])).contains("fiber-runtime"));
    assert!(output(fiber(engine, &["top", "--once", &started.name])).contains("2/2"));
    engine.lose(&started.name);
    attached.line("start 2");
    // The second failure is one too many, so its exit code is that of the session.
    attached.end().code(3).says(&["done: 5", "left: 3"]);
    waiting.end().code(3).says(&[&format!("{} ended with exit code 3", started.name)]);
    let ended = started.wait_until("it has ended", |session| session["state"] == "ended");
    assert_eq!((&ended["exit_code"], &ended["restarts"]), (&3.into(), &1.into()), "{ended:#}");
    let logs = output(fiber(engine, &["logs", &started.name]));
    for line in ["start 1", "waits", "start 2", "left: 3"] {
        assert_eq!(logs.matches(line).count(), 1, "{logs}");
    }
    // An `attach` that comes late learns the end, too.
    fiber(engine, &["attach", &started.name]).run().code(3);
    fiber(engine, &["kill", &started.name]).run().code(0);
    assert!(engine.units_of(&started.name).is_empty());
    assert!(started.listed().is_null());
}

#[trial]
fn a_head_that_succeeds_is_not_started_again(engine: &'static dyn Engine) {
    let name = own_name("test");
    let ending = run(engine, &["-a", "--restarts", "2", "--name", &name], "pi").run().code(0);
    assert_eq!(ending.out.matches("pi: 3.14").count(), 1, "{}", ending.out);
    assert!(engine.units_of(&name).is_empty());
}

#[trial]
fn a_killed_session_is_not_started_again(engine: &'static dyn Engine) {
    let started = StartedSession::new(engine, &["--restarts", "5"], "ready");
    let attached = fiber(engine, &["attach", "--from-start", &started.name]).start();
    attached.line("ready: 2");
    assert_eq!(engine.units_of(&started.name).len(), 3);
    fiber(engine, &["kill", &started.name])
        .run()
        .code(0)
        .says(&[&format!("Killed {} and its workers: 2", started.name)]);
    let ending = attached.end();
    assert!(!ending.out.contains("ready: 2"), "{}", ending.out);
    assert_ne!(ending.exit_code(), Some(0));
    wait_until("nothing is left", || engine.units_of(&started.name).is_empty());
    assert!(started.listed().is_null());
}

#[trial]
fn waiting_ends_with_the_exit_code_or_the_time(engine: &'static dyn Engine) {
    let (lives, ended) =
        (StartedSession::new(engine, &[], "ready"), StartedSession::new(engine, &[], "exit 3"));
    let late = fiber(engine, &["wait", "--timeout", "1s", &lives.name]).run().code(124);
    assert!(late.errors.contains("no end within 1s"), "{}", late.errors);
    fiber(engine, &["wait", &ended.name]).run().code(3);
    let both = fiber(engine, &["wait", &lives.name, &ended.name]).start();
    both.line(&format!("{} ended with exit code 3", ended.name));
    engine.kill(&lives.name);
    both.end().code(128 + rustix::process::Signal::KILL.as_raw());
}

#[trial]
fn a_person_attaches_and_detaches(engine: &'static dyn Engine) {
    let started = StartedSession::new(engine, &[], "ready");
    let attach = || {
        let attached =
            fiber(engine, &["attach", "--from-start", &started.name]).in_a_terminal().start();
        attached.line_with("q or Ctrl-C detaches");
        attached.line_with("ready: 2");
        attached
    };
    let mut first = attach();
    first.say("q");
    first.end().code(0).says(&[&format!("Detached from {}, which goes on", started.name)]);
    let mut second = attach();
    second.say("\x03");
    second.end().code(130);
    assert_eq!(started.listed()["state"], "running");
}
