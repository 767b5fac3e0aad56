//! Resource limits of containers.

use fiber_test_support::trial;

use crate::engine::{containers, inspect, leaves_nothing, program};

#[trial]
fn limits_are_real() {
    let mut program = program("modest").start();
    let limits = program.line("limits:");
    let (memory, quota) = limits.split_once(' ').expect("two limits");
    assert_eq!(memory, (96 << 20).to_string());
    assert!(quota.starts_with("50000"), "{quota}");
    let container = containers(program.pid()).remove(0);
    let seen = inspect(
        &container,
        "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}}",
    );
    assert_eq!(seen, format!("{0} {0} 500000000", 96 << 20));
    program.say("go on");
    leaves_nothing(program).code(0);
}

#[trial]
fn running_out_of_memory_is_reported() {
    leaves_nothing(program("hungry").start()).code(0).says(&["out of memory"]);
}

#[trial]
fn more_resources_than_exist_are_refused() {
    let ending = leaves_nothing(program("too much").start()).code(0);
    ending.says(&[
        "it asks for 1.0 PiB of memory, but the Docker host has",
        "it asks for 5000 CPU cores",
    ]);
}

#[trial]
fn a_missing_gpu_is_reported() {
    if std::path::Path::new("/dev/nvidia0").exists() {
        return;
    }
    leaves_nothing(program("gpu").start())
        .code(0)
        .says(&["gpu: ", "the Docker host offers no GPUs"]);
}
