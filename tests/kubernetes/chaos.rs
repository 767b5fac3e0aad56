//! Pods that are deleted while they work, nodes that take no more, and an API server that goes
//! away: nothing is lost.

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster::{Away, leaves_nothing, made, name, names, pods, program, text};
use crate::kubectl::{kubectl, nodes, try_kubectl, try_send};
use crate::program::{Program, pid};
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

/// Asks for what `kubectl drain` asks for. Clusters before 1.22 know its earlier version only.
fn evict(pod: &Value) {
    let namespace = text(&pod["metadata"]["namespace"]);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/eviction", name(pod));
    let ask = |version: &str| {
        let eviction =
            json!({"apiVersion": version, "kind": "Eviction", "metadata": {"name": name(pod)}});
        try_send("create", &path, &eviction)
    };
    ask("policy/v1").or_else(|_| ask("policy/v1beta1")).expect("it is to go");
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

/// No node takes pods for as long as this lives.
struct Cordoned(Vec<String>);

impl Cordoned {
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

fn an_api_server_that_is_away_is_not_missed() {
    let program = begun();
    let away = Away::begin();
    // The node is this host, where its processes can be seen.
    let victim = program
        .processes()
        .into_iter()
        .find(|process| *process != program.pid())
        .expect("it has workers");
    kill_process(pid(victim), Signal::KILL).expect("it runs");
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
    // Nobody can end the pods, and their nodes tell nobody: they end when they see their links
    // break.
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
