//! Programs whose processes are pods, their objects in the cluster, and disturbances of the
//! cluster.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fiber_test_support::kubectl::{get, kubectl, registry, try_kubectl};
use fiber_test_support::program::{Program, ProgramOutput, Setup, pid};
use fiber_test_support::wait::{wait_for_end, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Returns a program that plays a scenario with pods as processes.
pub(crate) fn program(scenario: &str) -> Setup {
    let setup = Setup::new(scenario);
    let setup = match registry() {
        Some(registry) => setup.env("FIBER_REGISTRY", registry),
        None => setup,
    };
    setup
        .env("FIBER_BACKEND", "kubernetes")
        .env("FIBER_ENVIRONMENT", "SCENARIO,SCENARIO_MARK")
        .env("FIBER_START_TIMEOUT", "120s")
}

/// Returns all objects of a kind that a process has created.
pub(crate) fn made(kind: &str, program: u32) -> Vec<Value> {
    let owner = format!("process {program} ");
    let Value::Array(items) = get(&[kind, "-l", "fiber.session"])["items"].take() else {
        panic!("it is a list")
    };
    items
        .into_iter()
        .filter(|item| text(&item["metadata"]["annotations"]["fiber.owner"]).starts_with(&owner))
        .collect()
}

pub(crate) fn pods(program: u32) -> Vec<Value> {
    made("pods", program)
}

/// Waits until the cluster knows that this pod runs. Kubelet 1.20 kills a pod at once, with all its
/// processes, if it is deleted or evicted before its status says that its containers run.
pub(crate) fn wait_until_running(pod: &str) {
    wait_until("the pod runs", || {
        let status = &get(&["pod", pod])["status"];
        status["phase"] == "Running" && status["containerStatuses"][0]["ready"] == true
    });
}

/// Deletes a pod as soon as the cluster knows that it runs.
pub(crate) fn delete_running(pod: &str) {
    wait_until_running(pod);
    kubectl(&["delete", "pod", pod, "--wait=false"]);
}

pub(crate) fn name(object: &Value) -> String {
    text(&object["metadata"]["name"]).to_string()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(name).collect()
}

/// Waits for the program's end, after which none of its pods and Secrets may be left.
pub(crate) fn leaves_nothing(program: Program) -> ProgramOutput {
    let pid = program.pid();
    let ending = program.end();
    wait_until("nothing is left", || pods(pid).is_empty() && made("secrets", pid).is_empty());
    ending
}

/// The image of this program's pods, read from one of them.
pub(crate) struct OwnImage {
    pub(crate) image: String,
    pub(crate) program: String,
    pub(crate) libraries: String,
}

pub(crate) fn own_image() -> &'static OwnImage {
    static OWN_IMAGE: OnceLock<OwnImage> = OnceLock::new();
    OWN_IMAGE.get_or_init(find_own_image)
}

fn find_own_image() -> OwnImage {
    let mut model = program("ready").start();
    model.line("ready: 2");
    let container = pods(model.pid()).remove(0)["spec"]["containers"][0].take();
    model.say("go on");
    leaves_nothing(model).code(0);
    let variables = container["env"].as_array().expect("it has some");
    let libraries = variables.iter().find(|variable| variable["name"] == "LD_LIBRARY_PATH");
    OwnImage {
        image: text(&container["image"]).to_string(),
        program: text(&container["command"][0]).to_string(),
        libraries: libraries
            .map(|variable| text(&variable["value"]).to_string())
            .unwrap_or_default(),
    }
}

/// Returns a unique name.
pub(crate) fn new_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("fiber-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An object that a test has created, as arguments of `kubectl delete`. Dropping this deletes it.
pub(crate) struct Object(pub(crate) Vec<String>);

impl Object {
    pub(crate) fn new(arguments: &[&str]) -> Object {
        Object(arguments.iter().map(|argument| argument.to_string()).collect())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut arguments =
            vec!["delete", "--ignore-not-found", "--grace-period=0", "--force", "--wait=false"];
        arguments.extend(self.0.iter().map(String::as_str));
        if let Err(problem) = try_kubectl(&arguments) {
            eprintln!("{} can't be deleted: {problem}", self.0.join(" "));
        }
    }
}

/// An outage of the API server, until this is dropped.
pub(crate) struct Outage;

impl Outage {
    /// Stops the API server. Skips the test if the server does not run on this host.
    pub(crate) fn begin() -> Outage {
        kill_process(component("kube-apiserver.pid"), Signal::KILL).expect("it runs");
        wait_until("it is away", || try_kubectl(&["get", "--raw", "/readyz"]).is_err());
        Outage
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        let start = Command::new(run("kube-apiserver")).spawn();
        let started = wait_for_end(&mut start.expect("it can be started again"));
        assert!(started.success());
        wait_until("it is back", || try_kubectl(&["get", "--raw", "/readyz"]).is_ok());
    }
}

/// A kubelet that stands still, until this is dropped. Its node stays ready for 40 s.
pub(crate) struct StoppedKubelet(Pid);

impl StoppedKubelet {
    /// Stops the kubelet. Skips the test if it does not run on this host.
    pub(crate) fn new() -> StoppedKubelet {
        let kubelet = component("kubelet.pid");
        kill_process(kubelet, Signal::STOP).expect("it runs");
        StoppedKubelet(kubelet)
    }
}

impl Drop for StoppedKubelet {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).expect("it runs");
    }
}

/// Returns the process of a component of the cluster from its file. Skips the test if the component
/// does not run on this host.
fn component(file: &str) -> Pid {
    let Ok(number) = std::fs::read_to_string(run(file)) else {
        crate::skip("the cluster's parts can be stopped only where kubernetes-up.sh started them")
    };
    pid(number.trim().parse().expect("a pid"))
}

/// Returns whether this host is the cluster's only node, as kubernetes-up.sh sets it up.
pub(crate) fn is_of_this_host() -> bool {
    run("kubelet.pid").exists()
}

/// Returns the path of a file that kubernetes-up.sh has written.
fn run(file: &str) -> PathBuf {
    let kubeconfig = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap_or_default());
    kubeconfig.parent().map(|directory| directory.join("run").join(file)).unwrap_or_default()
}
