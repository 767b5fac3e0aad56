//! Programs that work on machines.

use fiber::stats::ProcessState;
use fiber::{Meta, Pool};
use fiber_test_support::wait::{wait_for, wait_until};
use fiber_test_support::{TOGETHER, WARNINGS, scenario, tasks, trial};

use crate::machines::{Cut, NoSshd, processes_on, program};

#[trial]
fn a_pool_works_on_three_machines() {
    program("pi", "a:1,b:1,root@c:1").run().code(0).says(&["pi: 3.14"]);
}

#[trial]
fn managers_queues_pipes_locks_and_rings_work_between_machines() {
    program("together", "a:2,b:2,c:2").run().code(0).says(&TOGETHER);
}

/// Only the machines know what they have: `a` its GPUs, `b` also its cores.
#[trial]
fn a_request_that_no_machine_can_grant_is_refused_at_once() {
    let ended = program("too large", "a:1,b").env("FIBER_SCHEDULE_TIMEOUT", "1h").run().code(0);
    let problem = "no machine is large enough for a process of";
    ended.says(&[&format!("{problem} 4096 cores: "), &format!("{problem} 99 GPUs: ")]);
}

#[scenario("too large")]
fn too_large() {
    fiber::init();
    tasks::too_large(Meta::new().cpu(4096.0));
    tasks::too_large(Meta::new().gpu(99));
}

#[trial]
fn an_interface_is_found_by_its_network() {
    let network = "10.83.7.0/24";
    program("pi", "a:1,b:1").env("FIBER_INTERFACE", network).run().code(0).says(&["pi: 3.14"]);
}

#[trial]
fn output_comes_here() {
    let mut program = program("talk", "a").env("FIBER_OUTPUT", "prefix").start();
    program.line("[pool-1/worker-1] from a worker");
    program.say("go on");
    program.end().code(0);
}

#[trial]
fn a_machine_that_is_off_is_left_out() {
    let ended = program("work", "a:2,off:2,b:2").env(WARNINGS, "1").run().code(0);
    assert!(ended.errors.contains("no host could be started on `off`"), "{}", ended.errors);
    assert!(ended.errors.contains("is it up, and can this host reach it?"), "{}", ended.errors);
    ended.says(&["right: true", "ready again: 4"]);
}

#[trial]
fn a_machine_that_is_not_waited_for_is_no_failure() {
    // As a rule, the program ends before it is known that the machine is off.
    let ended = program("pi", "a:2,off:2").env(WARNINGS, "1").run().code(0);
    assert!(!ended.errors.contains("`off`: it was killed"), "{}", ended.errors);
}

#[trial]
fn the_work_of_a_machine_whose_sshd_is_killed_goes_on() {
    let program = program("work", "a:4,b:4").start();
    program.line("begun:");
    assert!(!processes_on(&program, "b").is_empty());
    let gone = NoSshd::on("b");
    wait_until("its processes have ended", || processes_on(&program, "b").is_empty());
    let ended = program.end().code(0);
    drop(gone);
    ended.says(&["right: true", "ready again: 4"]);
}

#[trial]
fn the_work_of_a_machine_whose_wire_is_cut_goes_on() {
    let program = program("work", "a:4,b:4").start();
    program.line("begun:");
    assert!(!processes_on(&program, "b").is_empty());
    let cut = Cut::of("b");
    wait_until("its processes have ended", || processes_on(&program, "b").is_empty());
    let ended = program.end().code(0);
    drop(cut);
    ended.says(&["right: true", "ready again: 4"]);
}

/// A program without a log is told once.
#[trial]
fn a_machine_that_is_down_is_named_on_standard_error() {
    let ended = program("work", "a:2,off:2,b:2").run().code(0);
    let warnings: Vec<_> = ended.errors.lines().filter(|line| line.contains("`off`")).collect();
    assert!(
        matches!(&warnings[..], [one] if one.starts_with("fiber: warning: `off` can't be used")),
        "{}",
        ended.errors
    );
}

#[trial]
fn a_home_that_is_read_only_is_warned_of_once_and_listed() {
    let ended = program("one home is read-only", "readonly:2,a:2").run().code(0);
    let problem = "can't keep a copy of the program (";
    let ended = ended.says(&["value: 7", "host-readonly: it can't be used: ", problem]);
    assert!(ended.out.contains("Read-only file system"), "{}", ended.out);
    assert!(ended.out.contains("set `ssh.cache`"), "{}", ended.out);
    let warning = "fiber: warning: `readonly` can't be used for now: ";
    let warnings = ended.errors.lines().filter(|line| line.starts_with(warning)).count();
    assert_eq!(warnings, 1, "{}", ended.errors);
}

/// Prints the state of the machine `readonly`, as `fiber ps` and `fiber top` have it.
#[scenario("one home is read-only")]
fn one_home_is_read_only() {
    fiber::init();
    // The other machine has room for half of them.
    let pool = Pool::builder().processes(4).build().unwrap();
    println!("value: {}", pool.apply(|| 7, ()).wait().unwrap());
    let state = wait_for("the machine fails", || {
        let processes = fiber::stats().expect("fiber is initialized").report.processes;
        let host = processes.into_iter().find(|process| process.name == "host-readonly");
        match host.map(|host| host.state) {
            Some(ProcessState::Waiting(why)) => Ok(why),
            other => Err(other),
        }
    });
    println!("host-readonly: {state}");
}
