//! `fiber run`.

use fiber_test_support::docker::docker;
use fiber_test_support::program::fails;
use fiber_test_support::{following, trial};
use rustix::process::Signal;
use serde_json::Value;

use crate::engine::{Engine, StartedSession, fiber, output, own_name, run};

/// Returns a unique session name.
fn named() -> String {
    own_name("test")
}

#[track_caller]
fn nothing_is_left(engine: &dyn Engine, name: &str) {
    let left = engine.units_of(name);
    assert!(left.is_empty(), "{left:?}");
}

#[trial]
fn pi_with_one_command(engine: &'static dyn Engine) {
    let name = named();
    let ending = run(engine, &["-a", "--name", &name], "pi").run().code(0).says(&["pi: 3.14"]);
    assert!(
        ending.errors.contains(&format!("Created {}: {name}", engine.unit())),
        "{}",
        ending.errors
    );
    nothing_is_left(engine, &name);
}

#[trial]
fn an_attached_run_ends_as_its_program_does(engine: &'static dyn Engine) {
    let ending = run(engine, &["--attach"], "exit 3").run().code(3);
    if engine.separates_streams() {
        assert_eq!(ending.out, "said");
        assert!(ending.errors.contains("complained"), "{}", ending.errors);
    } else {
        ending.says(&["said", "complained"]);
    }
    run(engine, &["-a"], "abort").run().code(128 + Signal::ABORT.as_raw());
}

#[trial]
fn logs_and_exit_code_can_be_read_later(engine: &'static dyn Engine) {
    let started = StartedSession::new(engine, &[], "exit 3");
    let digits = started.name.strip_prefix("fiber-").expect("it has such a name");
    assert!(digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digits}");
    let ended = started.wait_until("it has ended", |session| session["state"] == "ended");
    assert_eq!(ended["exit_code"], 3);
    let logs = fiber(engine, &["logs", &started.name]).run().code(0);
    match engine.separates_streams() {
        true => assert_eq!((logs.out.as_str(), logs.errors.as_str()), ("said", "complained")),
        false => drop(logs.says(&["said", "complained"])),
    }
    fiber(engine, &["logs", "-f", "--tail", "1", &started.name]).run().code(0);
    let ended = format!("{} has ended (3", started.name);
    let shows = format!("`fiber logs {}` shows its output", started.name);
    for command in ["top", "stack"] {
        let options = if command == "top" { &["--once"][..] } else { &[] };
        fails(
            fiber(engine, &[&[command], options, &[&*started.name]].concat()),
            1,
            &[&ended, &shows],
        );
    }
    fiber(engine, &["kill", &started.name]).run().code(0);
    nothing_is_left(engine, &started.name);
}

#[trial]
fn json_output_names_what_was_created(engine: &'static dyn Engine) {
    let name = named();
    let started = StartedSession::under(engine, &name);
    let created: Value =
        serde_json::from_str(&output(run(engine, &["--json", "--name", &name], "ready")))
            .expect("JSON");
    assert_eq!(created[engine.unit()], *name);
    let session = created["session"].as_str().expect("a session");
    assert!(
        session.len() == 8 && session.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{created}"
    );
    started.wait_until("it runs", |session| session["state"] == "running");
}

#[trial]
fn a_terminal_shows_progress(engine: &'static dyn Engine) {
    // A copy with a new name has an image of its own, which does not exist yet.
    let name = named().replace('-', "_");
    let directory = tempfile::tempdir().expect("there is room");
    let program = directory.path().join(&name);
    std::fs::copy("/proc/self/exe", &program).expect("there is room");
    let options = ["run", "-a", "--env", "SCENARIO=exit 3", &program.display().to_string()];
    let ending = fiber(engine, &options).in_a_terminal().run().code(3);
    let image = format!("building the image fiber-auto/{name}:");
    ending.says(&[&format!("✓ {image}"), " s)", "said"]);
    docker(&["rmi", "--force", &docker(&["images", "--quiet", &format!("fiber-auto/{name}")])]);
}

#[trial]
fn ctrl_c_in_a_terminal_ends_the_whole_session(engine: &'static dyn Engine) {
    let name = named();
    let mut program = run(engine, &["-a", "--name", &name], "ready").in_a_terminal().start();
    program.line("ready: 2");
    assert_eq!(engine.units_of(&name).len(), 3);
    program.say("\x03");
    program.end().code(128 + Signal::INT.as_raw());
    nothing_is_left(engine, &name);
}

#[trial]
fn a_command_that_is_lost_leaves_the_session(engine: &'static dyn Engine) {
    let started = following::LOSSES.map(|loss| {
        let session = StartedSession::under(engine, &named());
        let setup = run(engine, &["-a", "--name", &session.name], "ready");
        (loss, loss.start(setup), session)
    });
    let sessions = started.map(|(loss, command, session)| {
        loss.lose(command);
        session
    });
    let name = sessions[0].name.as_str();
    following::can_be_ended(name, |arguments| fiber(engine, arguments));
    for session in &sessions {
        assert_eq!(session.listed()["state"], "running");
        assert_eq!(engine.units_of(&session.name).len(), 3);
    }
}

#[trial]
fn a_signal_ends_the_whole_session(engine: &'static dyn Engine) {
    let name = named();
    let program = run(engine, &["-a", "--name", &name], "ready").start();
    program.line("ready: 2");
    let units = engine.units_of(&name);
    program.signal(Signal::TERM);
    program.end().code(128 + Signal::TERM.as_raw());
    for unit in units {
        nothing_is_left(engine, &unit);
    }
}

#[trial]
fn sigterm_lets_a_durable_program_end_what_runs(engine: &'static dyn Engine) {
    let name = named();
    let setup = run(engine, &["-a", "--name", &name], "durable");
    // The task takes as long as the program needs to see the signal.
    let program = setup.env("FIBER_SHUTDOWN_TIMEOUT", "0s").start();
    program.line("the task runs");
    program.signal(Signal::TERM);
    program.end().code(75).says(&["the task ends"]);
    nothing_is_left(engine, &name);
}

#[trial]
fn a_second_signal_skips_the_grace_period(engine: &'static dyn Engine) {
    let name = named();
    let setup = run(engine, &["-a", "--name", &name], "ready").env("FIBER_SHUTDOWN_TIMEOUT", "1h");
    let program = setup.start();
    program.line("ready: 2");
    let units = engine.units_of(&name);
    program.signal(Signal::INT);
    program.signal(Signal::INT);
    program.end().code(128 + Signal::INT.as_raw());
    for unit in units {
        nothing_is_left(engine, &unit);
    }
}

#[trial]
fn losing_the_reader_ends_the_whole_session(engine: &'static dyn Engine) {
    let name = named();
    let program = run(engine, &["-a", "--name", &name], "ready").start_unread();
    program.end().code(128 + Signal::PIPE.as_raw());
    nothing_is_left(engine, &name);
}

#[trial]
fn limits_are_those_requested(engine: &'static dyn Engine) {
    let limits = ["--cpu", "0.5", "--memory", "96MiB"];
    run(engine, &[&["-a"], &limits[..]].concat(), "limits")
        .run()
        .code(0)
        .says(&["limits: 100663296 50000"]);
    let started = StartedSession::new(engine, &limits, "ready");
    let listed = started.wait_until("it is listed", |session| session["state"] == "running");
    assert_eq!((&listed["cpu"], &listed["memory"]), (&0.5.into(), &100_663_296u64.into()));
}

#[trial]
fn running_out_of_memory_is_reported(engine: &'static dyn Engine) {
    let ending = run(engine, &["-a", "--memory", "48MiB"], "hungry").run().code(137);
    assert!(ending.errors.contains("out of memory"), "{}", ending.errors);
}

#[trial]
fn environment_and_configuration_are_forwarded(engine: &'static dyn Engine) {
    let own = std::env::current_exe().expect("this binary is somewhere").display().to_string();
    let options = [
        "run",
        "-a",
        "--env",
        "SCENARIO",
        "--env",
        "GIVEN=a=b c",
        "--env",
        "FIBER_ENVIRONMENT=GIVEN,SCENARIO",
    ];
    fiber(engine, &[&options[..], &[&own, "-a", "two words"]].concat())
        .env("SCENARIO", "environment")
        .file("fiber.toml", "processes = 3\nheartbeat = '300ms'\n")
        .run()
        .code(0)
        .says(&[
            "program: Some(\"a=b c\") [\"-a\", \"two words\"]",
            "worker: Some(\"a=b c\") [\"-a\", \"two words\"]",
            "workers: 3",
        ]);
}
