//! Connections that are reset, stalled, delayed or half closed, at every stage of a worker's life:
//! a pool replaces the worker, and a supervisor restarts a managed actor.

use std::time::{Duration, Instant};

use fiber_test_support::program::{Program, Setup};
use fiber_test_support::trial;

use crate::parent::IdleParent;
use crate::proxy::{Fault, Proxy};

/// The exit code of a child that could not begin its work.
const NOT_STARTED: i32 = 70;
/// The time for which a child without work waits for its parent's host.
const EARLY_LINK_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a connection, in both directions, after which the fault happens: before the first byte,
/// in the proof of the key, at the start of nng, in the handshake, in the request of the parent,
/// before the worker is ready, and at work.
const STAGES: [usize; 13] = [0, 40, 72, 136, 172, 184, 260, 500, 800, 1100, 1400, 1700, 2100];

fn start_behind(proxy: &Proxy) -> Program {
    let setup =
        Setup::new("behind a proxy").env("FIBER_LINK", "nng").env("FIBER_HEARTBEAT", "100ms");
    let setup = setup.env("FIBER_HEARTBEAT_TIMEOUT", "2s").env("PROXY", proxy.address());
    proxy.reads_parents_address_from(setup.directory().join("parent"));
    setup.start()
}

/// Each stage has a program of its own: they run side by side, as many faults end with a time limit.
fn recovers_from(fault: Fault) {
    std::thread::scope(|scope| {
        for stage in STAGES {
            scope.spawn(move || {
                let (proxy, mut program) = pool_with_fault(fault, stage);
                proxy.wait_for_the_fault();
                works_and_joins(&mut program, || {});
                program.end().code(0);
            });
        }
        // In the middle of the pool's end.
        let (proxy, mut program) = pool_with_fault(fault, usize::MAX);
        works_and_joins(&mut program, || proxy.fault_now());
        program.end().code(0);
    });
}

fn pool_with_fault(fault: Fault, stage: usize) -> (Proxy, Program) {
    let proxy = Proxy::new();
    let mut program = start_behind(&proxy);
    proxy.expose_next_to(fault, stage);
    program.say("pool");
    (proxy, program)
}

fn works_and_joins(program: &mut Program, at_end: impl FnOnce()) {
    program.say("whole");
    program.line("2 workers");
    program.say("join");
    at_end();
    program.line("joined");
}

#[trial]
fn a_pool_recovers_from_a_reset_at_any_stage() {
    recovers_from(Fault::Reset);
}

#[trial]
fn a_pool_recovers_from_a_stall_at_any_stage() {
    recovers_from(Fault::Stall);
}

#[trial]
fn a_pool_survives_a_delay_at_any_stage() {
    recovers_from(Fault::Delay);
}

#[trial]
fn a_pool_recovers_when_its_end_of_a_connection_is_closed_at_any_stage() {
    recovers_from(Fault::CloseToParent);
}

#[trial]
fn a_pool_recovers_when_a_workers_end_of_a_connection_is_closed_at_any_stage() {
    recovers_from(Fault::CloseToChild);
}

#[trial]
fn a_managed_actor_is_restarted_when_its_connection_is_reset() {
    let proxy = Proxy::new();
    let mut program = start_behind(&proxy);
    for fault in [Fault::Reset, Fault::CloseToChild] {
        proxy.expose_next_to(fault, usize::MAX);
        program.say("actor");
        program.line("it answers");
        proxy.fault_now();
        proxy.wait_for_the_fault();
        program.say("another actor");
        program.line("another answers");
    }
    program.end().code(0);
}

#[trial]
fn a_process_whose_connection_is_reset_fails_for_that_reason() {
    let proxy = Proxy::new();
    let mut program = start_behind(&proxy);
    proxy.expose_next_to(Fault::Reset, usize::MAX);
    program.say("process");
    program.line("it runs");
    proxy.fault_now();
    let error = program.line("it failed:");
    assert!(error.contains("lost its link"), "{error}");
    program.end().code(0);
}

#[trial]
fn a_child_without_work_whose_parent_closes_the_connection_ends() {
    let parent = IdleParent::start();
    let child = parent.child(Setup::new("main with init"), parent.address()).start();
    parent.wait_for_child();
    parent.end();
    let ending = child.end().code(NOT_STARTED);
    assert_eq!((ending.out, ending.errors), (String::new(), String::new()));
}

#[trial]
fn a_child_without_work_whose_parents_host_is_lost_ends() {
    if !Proxy::can_lose_hosts() {
        return eprintln!("skipped: this user can't filter a socket's packets");
    }
    let (parent, proxy) = (IdleParent::start(), Proxy::new());
    let setup = Setup::new("main with init");
    let file = setup.directory().join("parent");
    parent.write_address(&file);
    proxy.reads_parents_address_from(file);
    proxy.expose_next_to(Fault::LoseHost, usize::MAX);
    let child = parent.child(setup, proxy.address()).start();
    parent.wait_for_child();
    proxy.fault_now();
    proxy.wait_for_the_fault();
    let lost = Instant::now();
    child.end().code(NOT_STARTED);
    assert!(lost.elapsed() < EARLY_LINK_TIMEOUT + Duration::from_secs(15), "{:?}", lost.elapsed());
}
