//! Cases of Docker alone: paused containers, and labels that anybody may set.

use fiber_test_support::docker::{docker, try_docker};
use fiber_test_support::trial;
use fiber_test_support::wait::wait_for;

use crate::engine::{Engine, StartedSession, fails, fiber, output, own_name};
use crate::images;

#[trial]
fn a_paused_session_says_how_to_go_on_and_ends_in_order(engine: &'static dyn Engine) {
    let started = StartedSession::new(engine, &[], "ready");
    let name = started.name.as_str();
    fiber(engine, &["logs", "--follow", name]).start().line("ready: 2");
    docker(&["pause", name]);
    let listed = started.wait_until("it is paused", |session| session["state"] == "paused");
    let remedy = format!("docker unpause {name}");
    assert_eq!(listed["detail"], *remedy);
    let paused = format!("{name} is paused: `{remedy}` lets it go on");
    fails(fiber(engine, &["top", "--once", name]), 1, &[&paused]);
    fails(fiber(engine, &["stack", name]), 1, &[&paused]);
    fiber(engine, &["kill", name]).run().code(0);
    let container = format!("container={name}");
    let code = "{{.Actor.Attributes.exitCode}}";
    let events = ["events", "--since", "10m", "--until", "0s", "--format", code, "--filter"];
    let ends = [&events[..], &[&container, "--filter", "event=die"]].concat();
    // `--until` counts whole seconds: the last one is told late.
    let code = wait_for("its end is an event", || {
        Some(docker(&ends).trim().to_string()).filter(|code| !code.is_empty()).ok_or(())
    });
    assert_eq!(code, "143", "SIGTERM has ended it");
}

#[trial]
fn leftovers_of_others_with_one_label_of_fibers_are_not_removed(engine: &'static dyn Engine) {
    let (name, image, path) = (own_name("foreign"), images::own(engine), images::path());
    let label = ["--label", "fiber.session=0123abcd"];
    let environment = ["--env", "SCENARIO=exit 3", "--env", "LD_LIBRARY_PATH=/fiber/lib"];
    let run = [&["run", "--name", &name], &label[..], &environment[..], &[&image, &path]].concat();
    try_docker(&run).expect_err("its exit code is 3");
    let listed = StartedSession::under(engine, &name).listed();
    output(fiber(engine, &["clean"]));
    docker(&["rm", &name]);
    assert!(listed.is_null(), "{listed:#}");
}
