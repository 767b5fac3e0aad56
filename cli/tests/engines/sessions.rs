//! `fiber ps`, `fiber logs`, `fiber kill` and `fiber clean`.

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use crate::engine::{Engine, StartedSession, fiber, output, own_name, run};

/// Returns the containers or pods of a session's running workers.
fn running(session: &serde_json::Value) -> Vec<String> {
    let workers = session["workers"].as_array().into_iter().flatten();
    let running = workers.filter(|worker| worker["state"] == "running");
    let place =
        |worker: &serde_json::Value| Some(worker["place"].as_str()?.split_once(' ')?.1.to_string());
    running.filter_map(place).collect()
}

fn ready(engine: &'static dyn Engine) -> StartedSession {
    let started = StartedSession::new(engine, &[], "ready");
    started.wait_until("its workers run", |session| running(session).len() == 2);
    started
}

#[trial]
fn a_session_is_shown_with_its_workers_and_their_restarts(engine: &'static dyn Engine) {
    let started = ready(engine);
    let session = started.listed();
    assert_eq!(session["state"], "running");
    let mut names: Vec<_> = (0..2).map(|index| session["workers"][index]["name"].clone()).collect();
    names.sort_by_key(|name| name.to_string());
    assert_eq!(names, ["pool-1/worker-1", "pool-1/worker-2"]);
    assert!(session["machine"].is_string() && session["workers"][0]["machine"].is_string());
    assert_eq!(session["workers"][0]["memory"], 64 << 20);
    assert_eq!(session["workers"][0]["restarts"], 0);

    // The session replaces a killed worker, and `fiber ps` shows that.
    let victim = running(&session).remove(0);
    fiber(engine, &["kill", "--now", &victim]).run().code(0).says(&[&victim, &started.name]);
    let later = started.wait_until("it was replaced", |session| {
        let running = running(session);
        running.len() == 2 && !running.contains(&victim)
    });
    let restarts: u64 =
        (0..2).filter_map(|index| later["workers"][index]["restarts"].as_u64()).sum();
    assert_eq!(restarts, 1, "{later:#}");

    let table = output(fiber(engine, &["ps"]));
    for word in ["NAME", "RESTARTS", &started.name, "└ ", "pool-1/worker-1", "64.0M", "running"] {
        assert!(table.contains(word), "`{word}` is missing in:\n{table}");
    }
}

#[trial]
fn the_output_of_a_running_session_can_be_followed(engine: &'static dyn Engine) {
    let started = StartedSession::new(engine, &[], "ready");
    let following = fiber(engine, &["logs", "--follow", &started.name]).start();
    following.line("ready: 2");
    following.line("a worker speaks");
    // The end of the session is the end of its logs.
    engine.kill(&started.name);
    following.end().code(0);
}

#[trial]
fn a_session_is_asked_what_it_does(engine: &'static dyn Engine) {
    let started = ready(engine);
    let look = output(fiber(engine, &["top", "--json", &started.name]));
    let look: serde_json::Value = serde_json::from_str(&look).expect("it is JSON");
    let session = &look["sessions"][0];
    assert_eq!(session["name"], started.name.as_str(), "{look:#}");
    assert_eq!(session["backend"], engine.name());
    assert_eq!(session["pools"][0]["ready"], 2, "{session:#}");
    let worker = running(&started.listed()).remove(0);
    for name in [worker, format!("{}/pool-1/worker-2", started.name), started.name.clone()] {
        let stack = output(fiber(engine, &["stack", &name]));
        assert!(stack.contains("fiber-runtime"), "{stack}");
    }
    // The bridges have ended with the commands.
    let table = output(fiber(engine, &["top", "--once", &started.name]));
    assert!(table.contains("pool-1/worker-2") && table.contains("2/2"), "{table}");
}

#[trial]
fn each_command_takes_the_name_of_a_host_and_of_a_process_in_it(engine: &'static dyn Engine) {
    let started = StartedSession::new(engine, &["-e", "FIBER_PROCESSES_PER_JOB=2"], "ready");
    let following = fiber(engine, &["logs", "--follow", &started.name]).start();
    following.line("ready: 2");
    // An engine may learn of a start after the host has begun.
    let listed = started.wait_until("its host runs", |session| running(session).len() == 1);
    assert_eq!(listed["workers"].as_array().map(Vec::len), Some(1), "{listed:#}");
    assert_eq!(listed["workers"][0]["name"], "pool-1/host-1", "{listed:#}");
    let [host, worker] =
        ["host-1", "worker-1"].map(|name| format!("{}/pool-1/{name}", started.name));
    for name in [&host, &worker] {
        assert!(output(fiber(engine, &["stack", name])).contains("fiber-runtime"), "{name}");
        output(fiber(engine, &["logs", name]));
    }
    let job = running(&listed).remove(0);
    fiber(engine, &["kill", "--now", &worker])
        .run()
        .code(0)
        .says(&[&format!("Killed pool-1/worker-1, a process of {}", started.name)]);
    // Its neighbour goes on, in the same container or pod.
    assert_eq!(running(&started.listed()), [&*job]);
    fiber(engine, &["kill", "--now", &host]).run().code(0).says(&["Killed pool-1/host-1", &job]);
    started.wait_until("another host has its workers", |session| {
        let running = running(session);
        running.len() == 1 && running[0] != job
    });
}

#[trial]
fn killing_a_session_ends_its_workers(engine: &'static dyn Engine) {
    let started = ready(engine);
    let units = engine.units_of(&started.name);
    assert_eq!(units.len(), 3, "{units:?}");
    fiber(engine, &["kill", &started.name])
        .run()
        .code(0)
        .says(&[&format!("Killed {} and its workers: 2", started.name)]);
    for unit in units {
        assert!(engine.units_of(&unit).is_empty(), "{unit} is left");
    }
    assert!(started.listed().is_null());
}

#[trial]
fn leftovers_of_dead_sessions_are_removed(engine: &'static dyn Engine) {
    let (ended, killed, lives) =
        (StartedSession::new(engine, &[], "exit 3"), ready(engine), ready(engine));
    ended.wait_until("it has ended", |session| session["state"] == "ended");
    engine.kill(&killed.name);
    killed.wait_until("it has ended", |session| session["state"] == "ended");
    let removed = output(fiber(engine, &["clean", "--json"]));
    let removed: Vec<String> = serde_json::from_str(&removed).expect("it is a list");
    assert!(removed.contains(&ended.name) && removed.contains(&killed.name), "{removed:?}");
    assert!(!removed.iter().any(|name| engine.units_of(&lives.name).contains(name)), "{removed:?}");
    wait_until("they are gone", || ended.listed().is_null() && killed.listed().is_null());
    assert_eq!(running(&lives.listed()).len(), 2);
}

#[trial]
fn cleaning_keeps_the_exit_code_of_an_attached_run(engine: &'static dyn Engine) {
    let started = StartedSession::under(engine, &own_name("test"));
    let attached = run(engine, &["-a", "--name", &started.name], "ready").start();
    attached.line("ready: 2");
    // While it is stopped, `fiber clean` removes the head.
    attached.signal(Signal::STOP);
    engine.kill(&started.name);
    started.wait_until("it has ended", |session| session["state"] == "ended");
    output(fiber(engine, &["clean"]));
    wait_until("it is gone", || started.listed().is_null());
    attached.signal(Signal::CONT);
    attached.end().code(128 + Signal::KILL.as_raw());
}
