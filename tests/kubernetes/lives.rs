//! The lifetime of pods and of their program.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use fiber_test_support::kubectl::{get, kubectl};
use fiber_test_support::wait::wait_until;
use fiber_test_support::{TOGETHER, trial};
use rustix::process::Signal;

use crate::cluster::{delete_running, leaves_nothing, made, name, names, pods, program, text};

#[trial]
fn labels_and_annotations_describe_pods() {
    let mut program = program("ready").start();
    program.line("ready: 2");
    for pod in pods(program.pid()) {
        let metadata = &pod["metadata"];
        assert!(
            name(&pod).starts_with("fiber-") && name(&pod).contains("pool-1-worker-"),
            "{metadata}"
        );
        assert!(
            text(&metadata["annotations"]["fiber.name"]).starts_with("pool-1/worker-"),
            "{metadata}"
        );
        let label =
            |key: &str| text(&metadata["labels"][format!("app.kubernetes.io/{key}")]).to_string();
        assert_eq!((label("managed-by"), label("component")), ("fiber".into(), "process".into()));
        assert_eq!(
            label("instance"),
            format!("fiber-{}", text(&metadata["labels"]["fiber.session"]))
        );
        assert!(
            label("name").starts_with("kubernetes") && label("part-of") == label("name"),
            "{metadata}"
        );
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    }
    program.say("go on");
    leaves_nothing(program).code(0).says(&["sum: 55"]);
}

#[trial]
fn a_ticket_is_in_a_secret_until_its_container_runs() {
    let mut program = program("ready").start();
    program.line("ready: 2");
    for pod in pods(program.pid()) {
        let container = &pod["spec"]["containers"][0];
        let variables = container["env"].as_array().expect("it has some");
        let ticket = variables
            .iter()
            .find(|variable| variable["name"] == "FIBER_KEY")
            .expect("it has a ticket");
        assert_eq!(ticket["valueFrom"]["secretKeyRef"]["key"], "FIBER_KEY");
        assert_eq!(ticket["value"], serde_json::Value::Null);
    }
    wait_until("the Secrets are removed", || made("secrets", program.pid()).is_empty());
    program.say("go on");
    leaves_nothing(program).code(0);
}

#[trial]
fn finished_pods_have_the_status_completed() {
    let mut watch = Command::new("kubectl");
    // Not the pod's phase: the pod may be deleted before its node reports `Succeeded`.
    let state = ".status.containerStatuses[0].state.terminated";
    let owner = "{.metadata.annotations.fiber\\.owner}";
    let format = format!(
        "jsonpath={owner} {{.status.phase}} {{{state}.exitCode}} {{{state}.reason}}{{\"\\n\"}}"
    );
    watch
        .args(["get", "pods", "--watch", "-l", "fiber.session", "-o", &format])
        .stdout(Stdio::piped());
    let mut watch = watch.spawn().expect("the command `kubectl` is installed");
    let lines =
        BufReader::new(watch.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let (sender, seen) = mpsc::channel();
    std::thread::spawn(move || lines.for_each(|line| drop(sender.send(line))));
    let program = program("hosts").start();
    let owner = format!("process {} ", program.pid());
    leaves_nothing(program).code(0);
    let mut states = Vec::new();
    wait_until("its container is completed", || {
        states.extend(seen.try_iter().filter(|line: &String| line.starts_with(&owner)));
        states.last().is_some_and(|state| state.ends_with(" 0 Completed"))
    });
    let _ = watch.kill();
    let _ = watch.wait();
    assert!(!states.iter().any(|state| state.contains("Failed")), "{states:#?}");
}

#[trial]
fn a_killed_program_ends_its_pods_and_the_next_sweeps() {
    let killed = program("ready").start();
    killed.line("ready: 2");
    let pid = killed.pid();
    killed.signal(Signal::KILL);
    killed.end().signal(Signal::KILL);
    wait_until("they ended by themselves", || {
        pods(pid).iter().all(|pod| ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"])))
    });
    let mut next = program("ready").start();
    next.line("ready: 2");
    wait_until("they are swept", || pods(pid).is_empty() && made("secrets", pid).is_empty());
    next.say("go on");
    leaves_nothing(next).code(0).says(&["sum: 55"]);
}

#[trial]
fn a_program_that_exits_during_starts_leaves_nothing() {
    leaves_nothing(program("hasty").start()).code(0).says(&["first: 1"]);
}

#[trial]
fn sigterm_ends_the_program_and_its_pods() {
    let program = program("ready").start();
    program.line("ready: 2");
    program.signal(Signal::TERM);
    leaves_nothing(program).signal(Signal::TERM);
}

#[trial]
fn actors_queues_pipes_locks_and_rings_reach_across_pods() {
    leaves_nothing(program("together").start()).code(0).says(&TOGETHER);
}

#[trial]
fn output_of_pods_is_forwarded() {
    let mut program = program("talk").env("FIBER_OUTPUT", "prefix").start();
    // The output arrives while the pod runs, and stays in the pod's own log.
    assert_eq!(program.line("[pool-1/worker-1]"), "from a worker");
    let pod = names(&pods(program.pid())).remove(0);
    assert_eq!(kubectl(&["logs", &pod]), "from a worker");
    program.say("go on");
    leaves_nothing(program).code(0);
}

#[trial]
fn a_deleted_pod_ends_its_task_and_returns_the_others() {
    let mut program = program("drained").start();
    let pod = program.line("runs in: ");
    delete_running(&pod);
    assert_eq!(program.line("others: "), "59");
    program.say("go on");
    assert_eq!(program.line("ended in: "), pod);
    leaves_nothing(program).code(0).says(&["deaths: 0, redelivered: 0"]);
}

#[trial]
fn a_deleted_pod_whose_task_never_ends_counts_against_no_task() {
    let mut program = program("drained").env("FIBER_GRACE", "1s").start();
    let first = program.line("runs in: ");
    let deleted = &get(&["pod", &first])["spec"]["terminationGracePeriodSeconds"];
    assert_eq!(*deleted, 6, "longer than `grace`");
    delete_running(&first);
    let second = program.line("runs in: ");
    assert_ne!(first, second);
    program.say("go on");
    assert_eq!(program.line("ended in: "), second);
    leaves_nothing(program).code(0).says(&["deaths: 0, redelivered: 1"]);
}
