//! Pods that are deleted while they work, nodes that take no more, and an API server that goes away: nothing is lost.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Away, leaves_nothing, made, name, names, pods, program, text};
use crate::docker::kill_pod;
use crate::kubectl::{get, kubectl, try_kubectl, try_send};
use crate::program::Program;
use crate::wait::wait_until;

crate::tests![
    deleted_pods_are_replaced,
    pods_that_are_drained_are_replaced,
    a_node_that_takes_no_more_is_waited_for,
    an_api_server_that_is_away_is_not_missed,
    ten_seconds_without_the_api_server_cost_nothing,
    what_the_api_server_could_not_be_told_is_swept_later,
];

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

fn deleted_pods_are_replaced() {
    let program = begun();
    for _ in 0..3 {
        let Some(victim) = names(&pods(program.pid())).pop() else { continue };
        delete(&victim);
        wait_until("it is gone", || !names(&pods(program.pid())).contains(&victim));
    }
    completes(program);
}

fn pods_that_are_drained_are_replaced() {
    let program = program("steady").start();
    program.line("done:");
    evict(&pods(program.pid())[0]);
    leaves_nothing(program).code(0).says(&["right: true", "workers: 3"]);
}

/// Asks for what `kubectl drain` asks for.
fn evict(pod: &Value) {
    let namespace = text(&pod["metadata"]["namespace"]);
    let eviction = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name(pod)}});
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/eviction", name(pod));
    try_send("create", &path, &eviction).expect("it is to go");
}

fn a_node_that_takes_no_more_is_waited_for() {
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
    // The other one does the work.
    program.say("go on");
    leaves_nothing(program).code(0).says(&["sum: 55"]);
    drop(cordoned);
}

/// The node takes no pods for as long as this lives.
struct Cordoned(String);

impl Cordoned {
    fn new() -> Cordoned {
        let node = name(&get(&["nodes"])["items"][0]);
        kubectl(&["cordon", &node]);
        Cordoned(node)
    }
}

impl Drop for Cordoned {
    fn drop(&mut self) {
        kubectl(&["uncordon", &self.0]);
    }
}

fn an_api_server_that_is_away_is_not_missed() {
    let program = begun();
    let victim = names(&pods(program.pid())).remove(0);
    let away = Away::begin();
    kill_pod(&victim);
    program.line("right: true");
    // Now it is needed: for a pod in the place of the one that died.
    drop(away);
    program.line("ready again: 4");
    leaves_nothing(program).code(0);
}

fn ten_seconds_without_the_api_server_cost_nothing() {
    let program = program("steady").start();
    let before = program.line("done:").parse::<u64>().expect("a number");
    let away = Away::begin();
    // The outage itself, which is to be this long.
    std::thread::sleep(Duration::from_secs(10));
    while program.line("done:").parse::<u64>().expect("a number") < before + 5000 {}
    drop(away);
    leaves_nothing(program).code(0).says(&["right: true", "workers: 2"]);
}

fn what_the_api_server_could_not_be_told_is_swept_later() {
    // Nobody can end the pods, and their nodes tell nobody: they end when they see their links break.
    let mut ready = program("ready").outlive(Duration::from_secs(120)).start();
    ready.line("ready: 2");
    let pid = ready.pid();
    let away = Away::begin();
    ready.say("go on");
    ready.end().code(0).says(&["sum: 55"]);
    drop(away);
    let mut next = program("ready").start();
    next.line("ready: 2");
    wait_until("it is swept", || pods(pid).is_empty() && made("secrets", pid).is_empty());
    next.say("go on");
    leaves_nothing(next).code(0);
}
