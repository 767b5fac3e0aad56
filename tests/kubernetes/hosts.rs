//! Pods with several processes each.

use fiber_test_support::kubectl::{get, kubectl};
use fiber_test_support::program::Setup;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use crate::chaos::evict;
use crate::cluster::{leaves_nothing, names, pods, program, text, wait_until_running};

pub(crate) fn shared(scenario: &str, processes_per_job: usize) -> Setup {
    program(scenario).env("FIBER_PROCESSES_PER_JOB", processes_per_job.to_string())
}

#[trial]
fn eight_workers_share_two_pods() {
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
    let before = names(&pods(program.pid()));
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|pod| pod.contains("-pool-1-host-")), "{before:?}");
    kubectl(&["delete", "pod", &before[0], "--force", "--grace-period=0"]);
    // Its processes get SIGTERM just before the end.
    let reason = program.line("ended: ");
    assert!(
        reason.starts_with("lost its host pool-1/host-") || reason == "was asked to end by SIGTERM",
        "{reason}"
    );
    assert_eq!(program.line("right: "), "true");
    assert_eq!(program.line("jobs again: "), "2");

    let pid = program.pid();
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
    wait_until("its pods ended by themselves", || {
        pods(pid).iter().all(|pod| ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"])))
    });
}

#[trial]
fn the_limits_of_processes_add_up() {
    let program = shared("hosted limits", 4).start();
    // With 64 MiB for the host.
    assert_eq!(program.line("limits: "), format!("{} 100000", 320 << 20));
    assert!(program.line("error: ").contains("out of memory"));
    assert_eq!(program.line("the same job: "), "true");
    leaves_nothing(program).code(0);
}

#[trial]
fn an_evicted_pod_lets_the_tasks_of_all_its_workers_end() {
    let mut program = shared("drained", 2).start();
    let pod = program.line("runs in: ");
    wait_until_running(&pod);
    evict(&get(&["pod", &pod]));
    assert_eq!(program.line("others: "), "59");
    program.say("go on");
    assert_eq!(program.line("ended in: "), pod);
    leaves_nothing(program).code(0).says(&["deaths: 0, redelivered: 0"]);
}

#[trial]
fn more_processes_than_fit_onto_a_node_are_reported() {
    let setup = shared("hosted too much", 8).env("FIBER_SCHEDULE_TIMEOUT", "2s");
    leaves_nothing(setup.start()).code(0).says(&[
        "Insufficient cpu",
        "(it asks for 800 CPU cores; 8 processes share this job: a lower `processes_per_job` asks \
         for less)",
        "`schedule_timeout` sets the limit",
    ]);
}
