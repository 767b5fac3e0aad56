//! The cluster as its own command line shows it: what pods there are, and what is done to them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::program::{Ending, Program, Setup, pid};

/// How long anything may take that is to happen at all.
const LONG: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// What `kubectl` prints, or what it complains about.
pub(crate) fn try_kubectl(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command `kubectl` is installed");
    // It may not want any.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[track_caller]
pub(crate) fn kubectl(arguments: &[&str]) -> String {
    try_kubectl(arguments, "").unwrap_or_else(|problem| panic!("kubectl {}: {problem}", arguments.join(" ")))
}

/// Has the cluster have what the text says.
#[track_caller]
pub(crate) fn apply(object: &Value) {
    try_kubectl(&["apply", "-f", "-"], &object.to_string()).unwrap_or_else(|problem| panic!("{problem}: {object}"));
}

#[track_caller]
pub(crate) fn get(arguments: &[&str]) -> Value {
    let mut all = vec!["get", "-o", "json"];
    all.extend(arguments);
    serde_json::from_str(&kubectl(&all)).expect("it is JSON")
}

pub(crate) fn must_answer() {
    if let Err(problem) = try_kubectl(&["get", "pods"], "") {
        eprintln!(
            "error: TEST_BACKENDS names kubernetes, but no cluster answers (`make cluster-up` starts one): {problem}"
        );
        std::process::exit(1);
    }
}

/// A program of this scenario whose processes are pods.
pub(crate) fn program(scenario: &str) -> Setup {
    Setup::new(scenario)
        .env("FIBER_BACKEND", "kubernetes")
        .env("FIBER_ENVIRONMENT", "SCENARIO,SCENARIO_MARK")
        .env("FIBER_START_TIMEOUT", "120s")
        // A pod's process notices that it is alone at the latest when it finds nobody to connect to.
        .outlive(Duration::from_secs(30))
}

/// The objects of a kind that a process has made and that are there.
pub(crate) fn made(kind: &str, program: u32) -> Vec<Value> {
    let owner = format!("process {program} ");
    let Value::Array(items) = get(&[kind, "-l", "fiber.session"])["items"].take() else { panic!("it is a list") };
    items.into_iter().filter(|item| text(&item["metadata"]["annotations"]["fiber.owner"]).starts_with(&owner)).collect()
}

pub(crate) fn pods(program: u32) -> Vec<Value> {
    made("pods", program)
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

#[track_caller]
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}: it did not come to that");
        std::thread::sleep(LOOK);
    }
}

/// Ends the program in order, after which none of its pods and Secrets is there.
pub(crate) fn leaves_nothing(program: Program) -> Ending {
    let pid = program.pid();
    let ending = program.end();
    wait_until("nothing is left", || pods(pid).is_empty() && made("secrets", pid).is_empty());
    ending
}

/// What a pod of this program is made from, found out by having one made.
pub(crate) struct Made {
    pub(crate) image: String,
    pub(crate) program: String,
    pub(crate) libraries: String,
}

pub(crate) fn own_image() -> Made {
    let mut model = program("ready").start();
    model.line("ready: 2");
    let container = pods(model.pid()).remove(0)["spec"]["containers"][0].take();
    model.say("go on");
    leaves_nothing(model).code(0);
    let variables = container["env"].as_array().expect("it has some");
    let libraries = variables.iter().find(|variable| variable["name"] == "LD_LIBRARY_PATH");
    Made {
        image: text(&container["image"]).to_string(),
        program: text(&container["command"][0]).to_string(),
        libraries: libraries.map(|variable| text(&variable["value"]).to_string()).unwrap_or_default(),
    }
}

/// A name that no other test gives.
pub(crate) fn new_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("fiber-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Something that a test has made, such as `pod/x`. It goes with this.
pub(crate) struct Object(pub(crate) Vec<String>);

impl Object {
    pub(crate) fn new(arguments: &[&str]) -> Object {
        Object(arguments.iter().map(|argument| argument.to_string()).collect())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut arguments = vec!["delete", "--ignore-not-found", "--grace-period=0", "--force", "--wait=false"];
        arguments.extend(self.0.iter().map(String::as_str));
        if let Err(problem) = try_kubectl(&arguments, "") {
            eprintln!("{} stays behind: {problem}", self.0.join(" "));
        }
    }
}

/// The API server is away for as long as this lives.
pub(crate) struct Away;

impl Away {
    pub(crate) fn begin() -> Away {
        let number = std::fs::read_to_string(run("kube-apiserver.pid")).expect("the cluster is that of k8s-up.sh");
        kill_process(pid(number.trim().parse().expect("a pid")), Signal::KILL).expect("it runs");
        wait_until("it is away", || try_kubectl(&["get", "--raw", "/readyz"], "").is_err());
        Away
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let started = Command::new(run("kube-apiserver")).status().expect("it can be started again");
        assert!(started.success());
        wait_until("it is back", || try_kubectl(&["get", "--raw", "/readyz"], "").is_ok());
    }
}

/// A file of the cluster's that k8s-up.sh has written.
fn run(file: &str) -> PathBuf {
    let kubeconfig = PathBuf::from(std::env::var_os("KUBECONFIG").expect("KUBECONFIG is set"));
    kubeconfig.parent().expect("it is in a directory").join("run").join(file)
}
