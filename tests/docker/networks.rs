//! The networks of containers, and their connection to the program.

use fiber_test_support::docker::{docker, try_docker};
use fiber_test_support::trial;

use crate::engine::{Network, containers, inspect, leaves_nothing, program};
use crate::images::own_image;

#[trial]
fn two_networks_at_a_time() {
    let networks = [Network::new(), Network::new()];
    let programs = networks
        .each_ref()
        .map(|network| program("ready").env("FIBER_DOCKER_NETWORK", &network.name).start());
    for (mut program, network) in programs.into_iter().zip(&networks) {
        program.line("ready: 2");
        for container in containers(program.pid()) {
            assert_eq!(inspect(&container, "{{.HostConfig.NetworkMode}}"), network.name);
        }
        program.say("go on");
        leaves_nothing(program).code(0).says(&["sum: 55"]);
    }
}

#[trial]
fn the_network_of_the_host() {
    leaves_nothing(program("pi").env("FIBER_DOCKER_NETWORK", "host").start())
        .code(0)
        .says(&["pi: 3.14"]);
}

/// The program runs in a container of an image built from it, and its children in containers beside
/// it.
#[trial]
fn a_program_in_a_container() {
    let (image, program, libraries) = own_image();
    let network = Network::new();
    let start = [
        "run",
        "--rm",
        "--network",
        &network.name,
        "-v",
        "/var/run/docker.sock:/var/run/docker.sock",
        "-e",
        "FIBER_BACKEND=docker",
        "-e",
        "FIBER_ENVIRONMENT=SCENARIO",
        "-e",
        "SCENARIO=hosts",
        "-e",
        &libraries,
        "--entrypoint",
        &program,
        &image,
    ];
    let out = try_docker(&start).unwrap_or_else(|problem| panic!("{problem}"));
    let host = |who: &str| {
        out.lines().find_map(|line| line.strip_prefix(who)).expect(who).trim().to_string()
    };
    let (parent, child) = (host("parent:"), host("child:"));
    assert!(parent.len() == 12 && child.len() == 12 && parent != child, "{out}");
    let owner = format!("container {parent}");
    let left = docker(&["ps", "-a", "--format", "{{.Label \"fiber.owner\"}}"]);
    assert!(!left.lines().any(|line| line.starts_with(&owner)), "{left}");
}
