//! The lifetime of containers and of their program.

use fiber_test_support::docker::docker;
use fiber_test_support::wait::wait_until;
use fiber_test_support::{TOGETHER, trial};
use rustix::process::Signal;

use crate::engine::{containers, inspect, leaves_nothing, program};

#[trial]
fn labels_name_the_owner_of_containers() {
    let mut program = program("ready").start();
    program.line("ready: 2");
    for container in containers(program.pid()) {
        let name = inspect(&container, "{{.Name}} {{index .Config.Labels \"fiber.name\"}}");
        assert!(name.starts_with("/fiber-") && name.contains("pool-1/worker-"), "{name}");
        assert!(inspect(&container, "{{.Config.Image}}").starts_with("sha256:"));
        assert_eq!(inspect(&container, "{{.HostConfig.AutoRemove}}"), "true");
    }
    program.say("go on");
    leaves_nothing(program).code(0).says(&["sum: 55"]);
}

#[trial]
fn a_killed_program_leaves_nothing() {
    let program = program("ready").start();
    program.line("ready: 2");
    program.signal(Signal::KILL);
    leaves_nothing(program).signal(Signal::KILL);
}

#[trial]
fn leftovers_of_a_killed_program_are_swept_by_the_next() {
    let killed = program("ready").start();
    killed.line("ready: 2");
    let pid = killed.pid();
    // A paused container can't end by itself.
    let stuck = containers(pid).remove(0);
    docker(&["pause", &stuck]);
    killed.signal(Signal::KILL);
    // The program of another test may have swept the stuck one by then.
    wait_until("the other one ended by itself", || containers(pid).iter().all(|one| *one == stuck));
    let mut next = program("ready").start();
    next.line("ready: 2");
    wait_until("it is swept", || containers(pid).is_empty());
    next.say("go on");
    leaves_nothing(next).code(0).says(&["sum: 55"]);
}

#[trial]
fn a_program_that_exits_during_starts_leaves_nothing() {
    leaves_nothing(program("hasty").start()).code(0).says(&["first: 1"]);
}

#[trial]
fn sigterm_ends_the_program_and_its_containers() {
    let program = program("ready").start();
    program.line("ready: 2");
    program.signal(Signal::TERM);
    leaves_nothing(program).signal(Signal::TERM);
}

#[trial]
fn actors_queues_pipes_locks_and_rings_reach_across_containers() {
    leaves_nothing(program("together").start()).code(0).says(&TOGETHER);
}

#[trial]
fn the_session_key_is_in_no_log_and_no_process_list() {
    let mut program = program("talkative").start();
    program.line("ready: 2");
    let container = containers(program.pid()).remove(0);
    let mut output = docker(&["inspect", &container]);
    for process in program.processes() {
        let read =
            |file: &str| std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        output.extend(
            ["environ", "cmdline"].map(|file| String::from_utf8_lossy(&read(file)).into_owned()),
        );
    }
    docker(&["kill", &container]);
    program.say("go on");
    let ending = leaves_nothing(program).code(0).says(&["sum: 55"]);
    assert!(
        ending.errors.contains("TRACE") && ending.errors.contains("DEBUG"),
        "{}",
        ending.errors
    );
    output.extend([ending.errors, ending.out.clone()]);
    // Reversed, or the key itself would be in the output that the test searches.
    let key: String = ending
        .out
        .split("key backwards: ")
        .nth(1)
        .expect("a child prints it")
        .chars()
        .take(64)
        .collect();
    let key: String = key.chars().rev().collect();
    assert!(key.chars().all(|digit| digit.is_ascii_hexdigit()), "{key}");
    assert!(output.contains("FIBER_KEY=-") && !output.contains(&key));
}

#[trial]
fn pools_in_pools() {
    // A container that starts while its parent exits gets no answer at the parent's address, not
    // even a refusal.
    let mut program = program("family").env("FIBER_NESTED", "true").start();
    program.line("nested: done");
    program.say("go on");
    leaves_nothing(program).code(0).says(&["squares: [[0, 1, 4], [100, 121, 144]]"]);
}

#[trial]
fn a_stopped_container_ends_its_task_and_returns_the_others() {
    let mut program = program("drained").start();
    let container = program.line("runs in: ");
    std::thread::scope(|scope| {
        // It returns when the container has ended.
        let stopping = scope.spawn(|| docker(&["stop", &container]));
        assert_eq!(program.line("others: "), "59");
        program.say("go on");
        assert_eq!(program.line("ended in: "), container);
        stopping.join().expect("the stop succeeds");
    });
    leaves_nothing(program).code(0).says(&["deaths: 0, redelivered: 0"]);
}
