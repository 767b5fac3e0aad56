//! Errors of the command line, the engine and the cluster.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use fiber_test_support::kubectl::own_address;
use fiber_test_support::program::Setup;
use fiber_test_support::trial;

use crate::engine::{Engine, StartedSession, TestVolume, fails, fiber, own_name, run};

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
fn a_volume_specification_that_does_not_parse(engine: &'static dyn Engine) {
    for wrong in ["a b", "nfs:data", "nfs:/a:often", ":/data"] {
        fails(run(engine, &["-v", wrong], "pi"), 2, &[&format!("`{wrong}`"), "CLAIM:/PATH"]);
    }
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
fn more_resources_than_exist(engine: &'static dyn Engine) {
    let impatient =
        |options: [&str; 3]| run(engine, &options, "pi").env("FIBER_SCHEDULE_TIMEOUT", "1s");
    fails(impatient(["-a", "--memory", "900TiB"]), 125, &["900.0 TiB", "ask for less"]);
    fails(impatient(["-a", "--cpu", "5000"]), 125, &["5000 CPU cores", "ask for "]);
    fails(impatient(["-a", "--gpu", "100"]), 125, &["GPUs", "ask for "]);
}

/// Creates an executable file in a directory that is removed when the result is dropped.
fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join(name);
    fs::write(&path, bytes).expect("there is room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = path.display().to_string();
    (directory, path)
}

#[trial]
fn a_program_of_another_architecture(engine: &'static dyn Engine) {
    let mut bytes = fs::read("/proc/self/exe").expect("it can be read");
    // e_machine of a SPARC.
    bytes[18..20].copy_from_slice(&[43, 0]);
    let (_directory, path) = file("program", &bytes);
    fails(fiber(engine, &["run", &path]), 125, &[&path, "another architecture"]);
}

#[trial]
fn a_script(engine: &'static dyn Engine) {
    let (_directory, path) = file("script", b"#!/bin/sh\n");
    fails(fiber(engine, &["run", &path]), 125, &[&path, "is a script", "image"]);
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
fn an_image_that_cannot_be_pulled(engine: &'static dyn Engine) {
    let name = "localhost:1/fiber-test/no-such-image:1";
    fails(fiber(engine, &["run", "--image", name]), 125, &[name, "can't "]);
}

#[trial]
fn an_image_that_takes_too_long(engine: &'static dyn Engine) {
    // A registry that accepts connections and never answers.
    let host =
        if engine.name() == "kubernetes" { own_address() } else { Ipv4Addr::LOCALHOST.into() };
    let registry = TcpListener::bind((host, 0)).expect("a port is free");
    let image = format!("{}/fiber-test/slow:1", registry.local_addr().expect("it has one"));
    let name = own_name("test");
    let options = ["run", "--name", &name, "--image", &image];
    let mut ending =
        fiber(engine, &options).env("FIBER_PULL_TIMEOUT", "4s").in_a_terminal().run().code(125);
    // A terminal shows the step that takes so long.
    let (step, problem) = match engine.name() {
        "docker" => (
            format!("pulling the image {image}"),
            format!("the image `{image}` was not pulled within 4s"),
        ),
        _ => {
            ending = ending.says(&[&format!("starting the pod {name}: Pulling image")]);
            (
                format!("starting the pod {name}"),
                "its container was not created within 4s".to_string(),
            )
        }
    };
    ending.says(&[&format!("✗ {step}"), &problem, "(`pull_timeout` sets the limit)", &image]);
    assert!(engine.units_of(&name).is_empty());
}

#[trial]
fn a_claim_that_stays_pending(engine: &'static dyn Engine) {
    let Some(claim) = engine.create_pending_volume() else { return };
    let setup = run(engine, &["-a", "-v", &claim], "pi").env("FIBER_SCHEDULE_TIMEOUT", "2s");
    let words = format!("the claim `{claim}` is Pending");
    fails(setup, 125, &["it was not scheduled within 2s", &words]);
    let setup = fiber(engine, &["cp", "/etc/hosts", &format!("{claim}:/")])
        .env("FIBER_SCHEDULE_TIMEOUT", "2s");
    fails(setup, 1, &[&words]);
    assert!(engine.users_of(&claim).is_empty());
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
