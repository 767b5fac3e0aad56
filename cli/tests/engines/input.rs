//! Errors of the command line, the engine and the cluster.

use fiber_test_support::program::{Setup, fails};
use fiber_test_support::trial;

use crate::engine::{Engine, StartedSession, TestVolume, fiber, run};

#[trial]
fn no_engine(engine: &'static dyn Engine) {
    let (variables, words) = engine.absence();
    let without =
        |setup: Setup| variables.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
    fails(without(run(engine, &["-a"], "pi")), 125, words);
    fails(without(fiber(engine, &["ps"])), 1, words);
    fails(without(fiber(engine, &["cp", "a:/b", "c"])), 1, words);
}

#[trial]
fn a_claim_that_does_not_exist(engine: &'static dyn Engine) {
    let claim = TestVolume::new(engine);
    let wrong = format!("{}-not", claim.name);
    fails(
        run(engine, &["-v", &wrong], "pi"),
        125,
        &[&format!("there is no volume `{wrong}`"), &claim.name],
    );
    fails(
        fiber(engine, &["cp", "/etc/hosts", &format!("{wrong}:/")]),
        1,
        &[&format!("there is no volume `{wrong}`")],
    );
}

#[trial]
fn two_volumes_in_one_place(engine: &'static dyn Engine) {
    fails(
        run(engine, &["-v", "a", "-v", "b"], "pi"),
        125,
        &["`a` and `b` have the same path /persistent", "-v b:/PATH"],
    );
}

#[trial]
fn a_name_that_is_taken(engine: &'static dyn Engine) {
    let started = StartedSession::new(engine, &[], "ready");
    let taken = format!("a {} `{}` exists already", engine.unit(), started.name);
    fails(run(engine, &["--name", &started.name], "pi"), 125, &[&taken, "fiber kill"]);
    // The other session still runs.
    assert_eq!(started.listed()["state"], "running");
}

#[trial]
fn a_program_that_the_image_does_not_have(engine: &'static dyn Engine) {
    let image = crate::images::own(engine);
    let ending = fiber(engine, &["run", "-a", "--image", &image, "/no/such/program"]).run();
    assert!(
        format!("{}{}", ending.out, ending.errors).contains("/no/such/program"),
        "{}",
        ending.errors
    );
    // A kubelet fails before it starts the program, the init process of a container afterwards.
    ending.code(if engine.name() == "docker" { 127 } else { 125 });
}

#[trial]
fn a_namespace_that_does_not_exist(engine: &'static dyn Engine) {
    let setup = run(engine, &["--namespace", "fiber-test-nowhere"], "pi");
    if engine.name() == "kubernetes" {
        fails(setup, 125, &["there is no namespace `fiber-test-nowhere`"]);
    } else {
        fails(setup, 125, &["--namespace is for Kubernetes"]);
    }
}

#[trial]
fn a_registry_that_refuses(engine: &'static dyn Engine) {
    let setup = run(engine, &[], "pi").env("FIBER_REGISTRY", "localhost:1/some/where");
    fails(
        setup,
        125,
        &["localhost:1/some/where/fiber-auto/", "could not be pushed", "docker login localhost:1"],
    );
    let setup = run(engine, &[], "pi").env("FIBER_REGISTRY", "no registry");
    fails(setup, 125, &["`registry` is `no registry`"]);
}

#[trial]
fn a_variable_that_is_not_set(engine: &'static dyn Engine) {
    fails(run(engine, &["--env", "FIBER_TEST_NOT_SET"], "pi"), 125, &["FIBER_TEST_NOT_SET=VALUE"]);
    fails(run(engine, &["--env", "=x"], "pi"), 125, &["NAME=VALUE"]);
}
