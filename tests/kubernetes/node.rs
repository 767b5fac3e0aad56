//! The node's resources, preemption and eviction.

use fiber_test_support::gpus::{GPU, Gpus};
use fiber_test_support::kubectl::{apply, get, kubectl, nodes, try_send};
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use serde_json::{Value, json};

use crate::chaos::Cordoned;
use crate::cluster::{
    Object, leaves_nothing, name, names, new_name, own_image, pods, program, text,
    wait_until_running,
};
use crate::hosts::shared;

#[trial]
fn a_pool_works_with_the_workers_that_fit_and_grows() {
    let _gpus = Gpus::new(6);
    let other = new_name();
    let _other = Object::new(&["pod", &other]);
    occupy(&other, 2);
    let program = program("crowd").start();
    assert_eq!(program.line("ready:"), "4");
    assert_eq!(program.line("sum:"), "55");
    for pod in pods(program.pid()) {
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"][GPU], "1");
    }
    wait_until("two are unschedulable", || pending(program.pid()).len() == 2);
    let warning = program.line_with("pool `pool-1` works with 4 of 6 workers");
    assert!(warning.contains("1 Insufficient nvidia.com/gpu"), "{warning}");
    kubectl(&["delete", "pod", &other]);
    assert_eq!(program.line("grown:"), "6");
    let ending = leaves_nothing(program).code(0);
    assert!(!ending.out.contains("works with"), "it says so once: {}", ending.out);
}

#[trial]
fn processes_that_share_a_pod_have_gpus_of_their_own_and_wait_for_room_together() {
    let gpus = Gpus::new(4);
    let program = shared("hosted gpus", 2).start();
    assert_eq!(program.line("gpus: "), "0,1 2,3 in 1 job");
    for pod in pods(program.pid()) {
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"][GPU], "4");
    }
    wait_until("one is unschedulable", || pending(program.pid()).len() == 1);
    drop(gpus);
    let _more = Gpus::new(8);
    assert_eq!(program.line("grown: "), "4");
    leaves_nothing(program).code(0);
}

#[trial]
fn a_pod_that_its_node_rejects_is_created_again() {
    let _gpus = Gpus::new(6);
    let other = new_name();
    let _other = Object::new(&["pod", &other]);
    occupy(&other, 2);
    let program = program("crowd").start();
    program.line("sum:");
    wait_until("two are unschedulable", || pending(program.pid()).len() == 2);
    for rejected in pending(program.pid()) {
        place(&rejected);
        let is_other = |pod: &Value| {
            name(pod) == name(&rejected) && pod["metadata"]["uid"] != rejected["metadata"]["uid"]
        };
        wait_until("another is in its place", || pending(program.pid()).iter().any(is_other));
    }
    kubectl(&["delete", "pod", &other]);
    assert_eq!(program.line("grown:"), "6");
    leaves_nothing(program).code(0);
}

fn pending(program: u32) -> Vec<Value> {
    let mut pods = pods(program);
    pods.retain(|pod| text(&pod["status"]["phase"]) == "Pending");
    pods
}

/// Binds this pod to the node, as a scheduler does that knows less than the node about its
/// resources.
fn place(pod: &Value) {
    let namespace = text(&pod["metadata"]["namespace"]);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name(pod)},
        "target": {"kind": "Node", "name": name(&nodes()[0])},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/binding", name(pod));
    try_send("create", &path, &binding).expect("it is bound");
}

/// Starts a pod with this number of GPUs.
fn occupy(name: &str, gpus: u32) {
    let own = own_image();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": own.image,
                "command": [own.program],
                "env": [
                    {"name": "LD_LIBRARY_PATH", "value": own.libraries},
                    {"name": "SCENARIO", "value": "nothing"},
                ],
                "resources": {"limits": {GPU: gpus.to_string()}},
            }],
        },
    });
    apply(pod.clone());
    wait_until("it has them", || {
        let phase = text(&get(&["pod", name])["status"]["phase"]).to_string();
        // The kubelet learns the node's announced resources later than the scheduler.
        if phase == "Failed" {
            kubectl(&["delete", "pod", name]);
            apply(pod.clone());
        }
        phase == "Running"
    });
}

fn at_work() -> fiber_test_support::program::Program {
    let program = program("doomed").start();
    program.line("at work");
    program
}

#[trial]
fn preemption_is_reported() {
    let _gpus = Gpus::new(1);
    let program = at_work();
    let important = new_name();
    let _class = Object::new(&["priorityclass", &important]);
    apply(json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": important},
        "value": 1000,
    }));
    let image = pods(program.pid()).remove(0)["spec"]["containers"][0]["image"].take();
    let _pod = Object::new(&["pod", &important]);
    apply(pod(&important, &image));
    leaves_nothing(program).code(0).says(&["error: ", "was preempted: "]);
}

/// A NoExecute taint on a node, which evicts pods without a toleration. Dropping this removes it.
struct Taint(String);

impl Taint {
    fn of_the_node_of(pod: &Value) -> Taint {
        let node = text(&pod["spec"]["nodeName"]).to_string();
        kubectl(&["taint", "nodes", &node, "fiber-test=out:NoExecute"]);
        Taint(node)
    }
}

impl Drop for Taint {
    fn drop(&mut self) {
        kubectl(&["taint", "nodes", &self.0, "fiber-test-"]);
    }
}

#[trial]
fn eviction_is_reported() {
    let _gpus = Gpus::new(1);
    let program = at_work();
    let taint = Taint::of_the_node_of(&pods(program.pid())[0]);
    leaves_nothing(program).code(0).says(&["error: ", "was evicted from its node: "]);
    drop(taint);
}

#[trial]
fn a_drained_node_ends_tasks_in_order() {
    let mut program = program("drained").start();
    let pod = program.line("runs in: ");
    let all = pods(program.pid());
    names(&all).iter().for_each(|pod| wait_until_running(pod));
    let own = all.iter().find(|found| name(found) == pod).expect("it is one of them");
    let session = text(&own["metadata"]["labels"]["fiber.session"]);
    let node = Cordoned(vec![text(&own["spec"]["nodeName"]).to_string()]);
    let selector = format!("--pod-selector=fiber.session={session}");
    std::thread::scope(|scope| {
        // It returns when all the pods have ended.
        let draining = scope.spawn(|| kubectl(&["drain", &node.0[0], "--force", &selector]));
        wait_until("all of them are evicted", || {
            let deleted = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
            let is_old = |pod: &Value| all.iter().any(|old| name(old) == name(pod));
            pods(program.pid()).iter().all(|pod| deleted(pod) || !is_old(pod))
        });
        program.say("go on");
        draining.join().expect("the drain ends");
    });
    drop(node);
    assert_eq!(program.line("others: "), "59");
    assert_eq!(program.line("ended in: "), pod);
    leaves_nothing(program).code(0).says(&["deaths: 0, redelivered: 0"]);
}

/// Returns a pod with a higher priority.
fn pod(name: &str, image: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "priorityClassName": name,
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": image,
                "command": ["/none"],
                "resources": {"limits": {GPU: "1"}},
            }],
        },
    })
}
