//! Deleted pods, cordoned nodes, and an API server that is away: no work is lost.

use std::time::Duration;

use fiber_test_support::kubectl::{kubectl, nodes, try_kubectl, try_send};
use fiber_test_support::program::{Program, pid};
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster::{
    Outage, StoppedKubelet, leaves_nothing, made, name, names, own_image, pods, program, text,
};

fn begun() -> Program {
    let program = program("work").start();
    program.line("begun:");
    program
}

fn completes(program: Program) {
    leaves_nothing(program).code(0).says(&["right: true", "ready again: 4"]);
}

fn delete(pod: &str) {
    // It may be gone.
    let _ = try_kubectl(&["delete", "pod", pod, "--force", "--grace-period=0"]);
}

#[trial]
fn deleted_pods_are_replaced() {
    let program = begun();
    for _ in 0..3 {
        let Some(victim) = names(&pods(program.pid())).pop() else { continue };
        delete(&victim);
        wait_until("it is gone", || !names(&pods(program.pid())).contains(&victim));
    }
    completes(program);
}

#[trial]
fn drained_pods_are_replaced() {
    let mut program = program("steady").start();
    program.line("done:");
    evict(&pods(program.pid())[0]);
    program.line("workers so far: 3");
    program.say("enough");
    leaves_nothing(program).code(0).says(&["right: true", "workers: 3"]);
}

/// Evicts a pod like `kubectl drain`. Clusters before 1.22 know only an earlier version of this
/// API.
pub(crate) fn evict(pod: &Value) {
    let namespace = text(&pod["metadata"]["namespace"]);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/eviction", name(pod));
    let ask = |version: &str| {
        let eviction =
            json!({"apiVersion": version, "kind": "Eviction", "metadata": {"name": name(pod)}});
        try_send("create", &path, &eviction)
    };
    ask("policy/v1").or_else(|_| ask("policy/v1beta1")).expect("it is to go");
}

#[trial]
fn a_pod_waits_for_a_cordoned_node() {
    let mut program = program("calm").start();
    program.line("ready: 2");
    let cordoned = Cordoned::new();
    delete(&names(&pods(program.pid()))[0]);
    wait_until("its successor has no room", || {
        pods(program.pid()).iter().any(|pod| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["reason"] == "Unschedulable")
        })
    });
    // The other worker does the work.
    program.say("go on");
    leaves_nothing(program).code(0).says(&["sum: 55"]);
    drop(cordoned);
}

#[trial]
fn a_node_that_does_not_begin_to_start_a_pod_is_named() {
    // Making the image takes longer than the node stays ready.
    own_image();
    let stopped = StoppedKubelet::new();
    let setup = program("one task").env("FIBER_SCHEDULE_TIMEOUT", "2s");
    let ending = leaves_nothing(setup.start()).code(0);
    drop(stopped);
    ending.says(&[
        "error: ",
        "its node did not begin to start it within 2s (`schedule_timeout` sets the limit): node ",
        " has not started its container yet",
    ]);
}

/// Cordoned nodes. Dropping this makes them schedulable again.
pub(crate) struct Cordoned(pub(crate) Vec<String>);

impl Cordoned {
    /// Cordons all nodes.
    fn new() -> Cordoned {
        let nodes: Vec<String> = nodes().iter().map(name).collect();
        nodes.iter().for_each(|node| drop(kubectl(&["cordon", node])));
        Cordoned(nodes)
    }
}

impl Drop for Cordoned {
    fn drop(&mut self) {
        self.0.iter().for_each(|node| drop(kubectl(&["uncordon", node])));
    }
}

#[trial]
fn work_goes_on_without_the_api_server() {
    let mut program = begun();
    let away = Outage::begin();
    let victim = in_pods(&program).pop().expect("it has workers");
    kill_process(pid(victim), Signal::KILL).expect("it runs");
    program.say("enough");
    program.line("right: true");
    // Replacing the dead pod needs the API server.
    drop(away);
    program.line("ready again: 4");
    leaves_nothing(program).code(0);
}

#[trial]
fn workers_that_are_all_lost_without_the_api_server_are_replaced_after_it() {
    let program = begun();
    let away = Outage::begin();
    for worker in in_pods(&program) {
        // It may have ended with another one.
        let _ = kill_process(pid(worker), Signal::KILL);
    }
    wait_until("no worker is left", || in_pods(&program).is_empty());
    drop(away);
    completes(program);
}

/// Returns the pids of a program's processes in pods, here where its node is.
fn in_pods(program: &Program) -> Vec<u32> {
    let namespace = |process| std::fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let own = namespace(program.pid());
    let is_elsewhere = |process: &u32| {
        let its = namespace(*process);
        its.is_some() && its != own
    };
    program.processes().into_iter().filter(is_elsewhere).collect()
}

#[trial]
fn ten_seconds_without_the_api_server_cost_no_worker() {
    let mut program = program("steady").start();
    let before = program.line("done:").parse::<u64>().expect("a number");
    let away = Outage::begin();
    // The length of the outage is part of the test.
    std::thread::sleep(Duration::from_secs(10));
    while program.line("done:").parse::<u64>().expect("a number") < before + 5000 {}
    drop(away);
    program.say("enough");
    leaves_nothing(program).code(0).says(&["right: true", "workers: 2"]);
}

#[trial]
fn pods_that_could_not_be_deleted_are_swept_later() {
    // Without the API server, nothing can delete the pods: they end when their links break.
    let mut ready = program("ready").outlive(Duration::from_secs(120)).start();
    ready.line("ready: 2");
    let pid = ready.pid();
    let away = Outage::begin();
    ready.say("go on");
    ready.end().code(0).says(&["sum: 55"]);
    drop(away);
    let mut next = program("ready").start();
    next.line("ready: 2");
    wait_until("it is swept", || pods(pid).is_empty() && made("secrets", pid).is_empty());
    next.say("go on");
    leaves_nothing(next).code(0);
}
