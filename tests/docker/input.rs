//! Errors of the engine and of the configuration.

use std::os::unix::fs::PermissionsExt;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

use crate::engine::{in_docker, leaves_nothing, program};

#[track_caller]
fn fails(setup: Setup, words: &[&str]) {
    leaves_nothing(setup.start()).code(0).says(&["error: "]).says(words);
}

#[trial]
fn no_engine() {
    let setup = program("one task").env("DOCKER_HOST", "unix:///no/such/socket");
    fails(setup, &["no Docker engine answers at unix:///no/such/socket", "DOCKER_HOST"]);
    let setup = program("one task").env("DOCKER_HOST", "tcp://127.0.0.1:1");
    fails(setup, &["no Docker engine answers at tcp://127.0.0.1:1"]);
}

#[trial]
fn an_invalid_address() {
    fails(
        program("one task").env("DOCKER_HOST", "somewhere"),
        &["DOCKER_HOST is `somewhere`", "unix://"],
    );
}

#[trial]
fn no_permission() {
    let directory = tempfile::tempdir().expect("there is room");
    let executable = directory.path().join("program");
    std::fs::copy(std::env::current_exe().expect("it is somewhere"), &executable)
        .expect("there is room");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))
        .expect("it is ours");
    let setup = in_docker(Setup::with_executable("one task", &executable)).user(65534);
    fails(
        setup,
        &[
            "this user may not use the Docker engine at unix:///var/run/docker.sock",
            "group `docker`",
        ],
    );
}

#[trial]
fn a_network_that_does_not_exist() {
    fails(
        program("one task").env("FIBER_DOCKER_NETWORK", "nowhere"),
        &["there is no network `nowhere`", "docker network create"],
    );
}

#[trial]
fn a_mount_that_does_not_exist() {
    let setup = program("one task").env("FIBER_MOUNTS", "/no/such/directory:/data");
    fails(setup, &["/no/such/directory", "correct `mounts`"]);
}

#[trial]
fn a_user_that_does_not_exist() {
    fails(program("one task").env("FIBER_USER", "nobody-knows"), &["nobody-knows", "`user`"]);
}

#[trial]
fn an_engine_that_is_elsewhere() {
    let setup = program("one task").env("FIBER_BIND_HOST", "0.0.0.0");
    fails(setup, &["bind_host is 0.0.0.0", "`advertised_host`"]);
    let setup = program("one task").env("FIBER_BIND_HOST", "192.0.2.1");
    fails(setup, &["192.0.2.1"]);
}
