//! Resource limits of pods.

use fiber_test_support::trial;

use crate::cluster::{leaves_nothing, pods, program, text};

#[trial]
fn limits_are_real() {
    let mut program = program("modest").start();
    let limits = program.line("limits:");
    let (memory, quota) = limits.split_once(' ').expect("two limits");
    assert_eq!(memory, (96 << 20).to_string());
    assert!(quota.starts_with("50000"), "{quota}");
    let resources = pods(program.pid()).remove(0)["spec"]["containers"][0]["resources"].take();
    assert_eq!(resources["limits"], resources["requests"]);
    let limit = |name: &str| text(&resources["limits"][name]).to_string();
    assert_eq!((limit("cpu"), limit("memory")), ("500m".into(), (96 << 20).to_string()));
    program.say("go on");
    leaves_nothing(program).code(0);
}

#[trial]
fn running_out_of_memory_is_reported() {
    leaves_nothing(program("hungry").start()).code(0).says(&["out of memory"]);
}

#[trial]
fn more_resources_than_any_node_has_are_reported() {
    let ending =
        leaves_nothing(program("too much").env("FIBER_SCHEDULE_TIMEOUT", "2s").start()).code(0);
    ending.says(&[
        "Insufficient memory",
        "(it asks for 1.0 PiB of memory)",
        "Insufficient cpu",
        "(it asks for 5000 CPU cores)",
        "`schedule_timeout` sets the limit",
    ]);
}
