//! Containers with several processes each.

use fiber_test_support::docker::docker;
use fiber_test_support::program::Setup;
use fiber_test_support::trial;
use rustix::process::Signal;

use crate::engine::{containers, inspect, leaves_nothing, program};

fn shared(scenario: &str, processes_per_job: usize) -> Setup {
    program(scenario).env("FIBER_PROCESSES_PER_JOB", processes_per_job.to_string())
}

#[trial]
fn eight_workers_share_two_containers() {
    let mut program = shared("hosted", 4).env("FIBER_OUTPUT", "prefix").start();
    assert_eq!(program.line("jobs: "), "2");
    assert_eq!(program.line("pi: "), "3.14");
    assert_eq!(program.line("shared: "), "[(true, true), (true, true)]");
    assert!(program.line_with("about to die").starts_with("[pool-1/worker-"));
    assert_eq!(program.line("ended: "), "was killed by signal 6 (SIGABRT)");
    assert_eq!(program.line("sum: "), "4950");
    assert_eq!(program.line("deaths: "), "1");
    assert_eq!(program.line("the same jobs: "), "true");

    program.say("work on");
    program.line("begun: ");
    let all = containers(program.pid());
    assert_eq!(all.len(), 2);
    let name = inspect(&all[0], "{{index .Config.Labels \"fiber.name\"}}");
    docker(&["kill", &all[0]]);
    let reason = format!("lost its host {name}, which was killed by signal 9 (SIGKILL)");
    assert_eq!(program.line("ended: "), reason);
    assert_eq!(program.line("right: "), "true");
    assert_eq!(program.line("jobs again: "), "2");

    program.signal(Signal::KILL);
    leaves_nothing(program).signal(Signal::KILL);
}

#[trial]
fn the_limits_of_processes_add_up() {
    let program = shared("hosted limits", 4).env("FIBER_OUTPUT", "file").start();
    // With 64 MiB for the host.
    assert_eq!(program.line("limits: "), format!("{} 100000", 320 << 20));
    assert!(program.line("error: ").contains("out of memory"));
    assert_eq!(program.line("the same job: "), "true");
    let ending = leaves_nothing(program).code(0);
    let log = ending.directory().join("fiber-logs/pool-1-host-1.log");
    let log = std::fs::read_to_string(log).expect("a job has one file");
    assert!(log.contains("[pool-1/worker-") && log.contains("] memory allocation of"), "{log}");
}

#[trial]
fn more_processes_than_fit_into_a_container_are_refused() {
    leaves_nothing(shared("hosted too much", 8).start()).code(0).says(&[
        "it asks for 800 CPU cores, but the Docker host has",
        "8 processes share this job: a lower `processes_per_job` asks for less",
    ]);
}
