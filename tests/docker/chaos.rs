//! Containers that are killed, paused, or disconnected during work: no work is lost.

use fiber_test_support::docker::{docker, try_docker};
use fiber_test_support::program::Program;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use crate::engine::{Network, containers, leaves_nothing, program};

fn begun() -> (Program, Network) {
    let network = Network::new();
    let program = program("work").env("FIBER_DOCKER_NETWORK", &network.name).start();
    program.line("begun:");
    (program, network)
}

fn completes(program: Program) {
    leaves_nothing(program).code(0).says(&["right: true", "ready again: 4"]);
}

#[trial]
fn killed_containers_are_replaced() {
    let (program, _network) = begun();
    for _ in 0..5 {
        let Some(victim) = containers(program.pid()).pop() else { continue };
        // It may be just before its start.
        let _ = try_docker(&["kill", &victim]);
        wait_until("it is gone", || !containers(program.pid()).contains(&victim));
    }
    completes(program);
}

#[trial]
fn a_paused_container_is_replaced() {
    let (program, _network) = begun();
    let victim = containers(program.pid()).remove(0);
    docker(&["pause", &victim]);
    wait_until("it has ended", || !containers(program.pid()).contains(&victim));
    completes(program);
}

#[trial]
fn a_container_that_is_cut_off_is_replaced_and_does_no_harm_when_it_comes_back() {
    let (program, network) = begun();
    let mut victims = containers(program.pid());
    victims.truncate(2);
    for victim in &victims {
        docker(&["network", "disconnect", &network.name, victim]);
    }
    // It comes back at once: the program succeeds whether it noticed the loss or not.
    docker(&["network", "connect", &network.name, &victims[1]]);
    wait_until("it is ended", || !containers(program.pid()).contains(&victims[0]));
    completes(program);
}

/// The parent is stopped meanwhile, so the containers have to end by themselves.
#[trial]
fn containers_that_lose_their_parents_host_end_by_themselves() {
    let network = Network::new();
    let setup = program("ready")
        .env("FIBER_DOCKER_NETWORK", &network.name)
        .env("FIBER_HEARTBEAT_TIMEOUT", "3s");
    let mut program = setup.start();
    program.line("ready: 2");
    program.signal(Signal::STOP);
    for container in containers(program.pid()) {
        docker(&["network", "disconnect", &network.name, &container]);
    }
    wait_until("they have ended", || containers(program.pid()).is_empty());
    program.signal(Signal::CONT);
    program.say("go on");
    leaves_nothing(program).code(0).says(&["sum: 55"]);
}
