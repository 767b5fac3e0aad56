//! Kubernetes only: users and their rights, the parts of pods that users set, and a node whose
//! resources a pod waits for.

use std::path::PathBuf;

use fiber_test_support::gpus::Gpus;
use fiber_test_support::kubeconfig;
use fiber_test_support::kubectl::{apply, get, kubectl, try_kubectl, try_send};
use fiber_test_support::program::{Setup, fails};
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::engine::kubernetes::{TestNamespace, namespace, pod_of_job};
use crate::engine::{Engine, StartedSession, TestVolume, fiber, own_name, run};
use crate::images;

#[trial]
fn a_right_that_is_missing(engine: &'static dyn Engine) {
    let directory = TempDir::new().expect("there is room");
    let file = kubeconfig::of_user(directory.path(), "user-without-rights");
    let missing = |setup: Setup, code: i32, what: &str| {
        let manifest =
            "kubectl apply -f deploy/kubernetes/rbac.yaml, with the namespace `fiber` changed to `";
        let user = format!("User \"user-without-rights\" cannot {what}");
        fails(setup.env("KUBECONFIG", &file), code, &[&user, manifest, namespace()]);
    };
    missing(run(engine, &[], "pi"), 125, "create resource \"pods\"");
    missing(run(engine, &["-v", "data"], "pi"), 125, "get resource \"persistentvolumeclaims\"");
    missing(fiber(engine, &["ps"]), 1, "list resource \"pods\"");
    missing(
        fiber(engine, &["cp", "/etc/hosts", "data:/"]),
        1,
        "get resource \"persistentvolumeclaims\"",
    );
}

#[trial]
fn the_rights_of_the_manifest_are_enough(engine: &'static dyn Engine) {
    let directory = TempDir::new().expect("there is room");
    let user = own_name("user");
    let file: PathBuf = kubeconfig::of_user(directory.path(), &user);
    for role in ["fiber", "fiber-command"] {
        let (binding, role) = (format!("{user}-{role}"), format!("--role={role}"));
        let user = format!("--user={user}");
        kubectl(&["create", "rolebinding", &binding, &role, &user, "--namespace", namespace()]);
    }
    let claim = TestVolume::new(engine);
    let allowed = |setup: Setup| setup.env("KUBECONFIG", &file).run().code(0);
    allowed(run(engine, &["-a", "-v", &claim.name], "persistent")).says(&["lines: 1"]);
    let copy = directory.path().join("copy");
    allowed(fiber(engine, &["cp", &claim.at("/notes.txt"), &copy.display().to_string()]));
    assert!(std::fs::read_to_string(copy).expect("it is there").contains("this is run 1"));
    let name = own_name("test");
    let _started = StartedSession::under(engine, &name);
    allowed(run(engine, &["--name", &name], "ready"));
    allowed(fiber(engine, &["ps"])).says(&[&name]);
    allowed(fiber(engine, &["logs", &name]));
    allowed(fiber(engine, &["kill", &name]));
    // A head that Kubernetes starts again.
    let again = own_name("test");
    let _again = StartedSession::under(engine, &again);
    allowed(run(engine, &["--restarts", "1", "--name", &again], "exit 3"));
    let attach = fiber(engine, &["attach", "--from-start", &again]).env("KUBECONFIG", &file);
    assert_eq!(attach.run().code(3).out.matches("said").count(), 2);
    allowed(fiber(engine, &["ps"])).says(&[&again]);
    allowed(fiber(engine, &["kill", &again]));
}

/// Starts a pool of two workers in a namespace, and checks the three pods.
fn in_a_namespace(
    engine: &dyn Engine,
    namespace: &TestNamespace,
    set: &[(&'static str, &str)],
    is_right: impl Fn(&Value) -> bool,
) {
    let with = |setup: Setup| {
        let setup = setup.env("FIBER_KUBERNETES_NAMESPACE", &namespace.name);
        set.iter().fold(setup, |setup, (name, value)| setup.env(name, value))
    };
    let name = own_name("test");
    with(run(engine, &["--name", &name], "ready")).run().code(0);
    let following = with(fiber(engine, &["logs", "--follow", &name])).start();
    following.line("ready: 2");
    let pods = namespace.pods();
    assert_eq!(pods.len(), 3);
    for pod in pods {
        assert!(is_right(&pod), "{pod:#}");
    }
    with(fiber(engine, &["top", "--once", &name])).run().code(0).says(&["2/2"]);
    with(fiber(engine, &["kill", &name])).run().code(0);
    wait_until("its pods are gone", || namespace.pods().is_empty());
}

/// A cluster before 1.23 does not enforce the standard, hence the look at each of its controls.
#[trial]
fn pods_of_a_user_who_is_not_root_meet_the_restricted_standard(engine: &'static dyn Engine) {
    let enforced = "pod-security.kubernetes.io/enforce=restricted";
    let namespace = TestNamespace::new(&[enforced]);
    in_a_namespace(engine, &namespace, &[("FIBER_USER", "1000:1000")], |pod| {
        let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
        spec["securityContext"]["runAsUser"] == 1000
            && spec["securityContext"]["runAsNonRoot"] == true
            && spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
            && container["securityContext"]["allowPrivilegeEscalation"] == false
            && container["securityContext"]["capabilities"] == json!({"drop": ["ALL"]})
            && ["hostNetwork", "hostPID", "hostIPC"].iter().all(|name| spec[*name].is_null())
    });
}

/// The pods of the pool before are still ending.
#[trial]
fn pods_wait_for_the_room_of_a_quota(engine: &'static dyn Engine) {
    let namespace = TestNamespace::new(&[]);
    let quota = |name: &str, hard: &str| {
        let hard = format!("--hard={hard}");
        kubectl(&["create", "quota", name, &hard, "--namespace", &namespace.name]);
        // Kubernetes counts what there is before it enforces the quota.
        let counted =
            ["get", "quota", name, "--namespace", &namespace.name, "-o", "jsonpath={.status.hard}"];
        wait_until("the quota counts", || try_kubectl(&counted).is_ok_and(|hard| !hard.is_empty()));
    };
    let inside = |setup: Setup| setup.env("FIBER_KUBERNETES_NAMESPACE", &namespace.name);
    quota("three-pods", "pods=3");
    let ending = inside(run(engine, &["-a"], "pools")).run().code(0);
    ending.says(&["sum: 10", "sum: 11", "sum: 12"]);

    wait_until("its pods are gone", || namespace.pods().is_empty());
    quota("no-pod", "pods=0");
    let waits = inside(run(engine, &[], "pi")).env("FIBER_SCHEDULE_TIMEOUT", "1s");
    fails(
        waits,
        125,
        &["it was not created within 1s: exceeded quota: no-pod", "`schedule_timeout`"],
    );

    kubectl(&["delete", "quota", "no-pod", "--namespace", &namespace.name]);
    quota("cores", "limits.cpu=4");
    fails(inside(run(engine, &[], "pi")), 125, &["must specify limits.cpu", "`--cpu`"]);
}

#[trial]
fn pods_start_from_a_template(engine: &'static dyn Engine) {
    let directory = TempDir::new().expect("there is room");
    let file = directory.path().join("pod.yaml");
    let template = json!({
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["of-the-template"]}],
            "tolerations": [{"key": "fiber-test", "operator": "Exists"}],
            "containers": [{
                "name": "a-sidecar",
                "image": images::own(engine),
                "command": [images::path()],
                "env": [
                    {"name": "SCENARIO", "value": "waits"},
                    {"name": "LD_LIBRARY_PATH", "value": "/fiber/lib"},
                ],
            }],
        },
    });
    std::fs::write(&file, template.to_string()).expect("there is room");
    let path = file.display().to_string();
    let namespace = TestNamespace::new(&[]);
    in_a_namespace(engine, &namespace, &[("FIBER_KUBERNETES_POD_TEMPLATE", &path)], |pod| {
        let tolerations = pod["spec"]["tolerations"].as_array();
        pod["metadata"]["labels"]["team"] == "a"
            && pod["spec"]["hostAliases"] == template["spec"]["hostAliases"]
            && tolerations.is_some_and(|all| all.iter().any(|one| one["key"] == "fiber-test"))
            && pod["spec"]["containers"].as_array().map(Vec::len) == Some(2)
    });

    // The sidecar keeps the pod, so Kubernetes starts its program no more.
    let again = |scenario: &str| {
        let setup = run(engine, &["-a", "--restarts", "1"], scenario);
        setup.env("FIBER_KUBERNETES_POD_TEMPLATE", &path).run()
    };
    again("pi").code(0).says(&["pi: 3.14"]);
    let errors = again("exit 3").code(3).errors;
    assert!(errors.contains("its pod goes on for its container `a-sidecar`"), "{errors}");

    std::fs::write(&file, "spec: {container: []}").expect("there is room");
    let wrong = run(engine, &[], "pi").env("FIBER_KUBERNETES_POD_TEMPLATE", &path);
    fails(wrong, 125, &["`kubernetes.pod_template` is `", "a Pod has no field `spec.container`"]);
}

#[trial]
fn a_head_without_its_service_account_says_so(engine: &'static dyn Engine) {
    let namespace = TestNamespace::new(&[]);
    kubectl(&["delete", "serviceaccount", "fiber", "--namespace", &namespace.name]);
    let name = own_name("test");
    let inside = |setup: Setup| setup.env("FIBER_KUBERNETES_NAMESPACE", &namespace.name);
    let errors = inside(run(engine, &["--name", &name], "waits")).run().code(0).errors;
    let words = format!("{name} runs as the namespace's default service account");
    assert!(errors.contains(&words) && errors.contains("rbac.yaml"), "{errors}");
    inside(fiber(engine, &["kill", &name])).run().code(0);
    let named = inside(run(engine, &["-a"], "exit 3"));
    let errors = named.env("FIBER_KUBERNETES_SERVICE_ACCOUNT", "default").run().code(3).errors;
    assert!(!errors.contains("service account"), "{errors}");
}

/// Creates the object that `fiber run --restarts` makes for a program, as a policy of the cluster
/// would change it: the proxy of a service mesh is before the program.
fn create_behind_a_proxy(
    engine: &'static dyn Engine,
    kind: &str,
    scenario: &str,
) -> StartedSession {
    let model = StartedSession::new(engine, &["--restarts", "1"], scenario);
    let mut job = get(&["job", &model.name, "--namespace", namespace()]);
    fiber(engine, &["kill", "--now", &model.name]).run().code(0);
    let mut spec = job["spec"]["template"]["spec"].take();
    let proxy = json!({
        "name": "a-proxy",
        "image": images::own(engine),
        "command": [images::path()],
        "env": [
            {"name": "SCENARIO", "value": "waits"},
            {"name": "LD_LIBRARY_PATH", "value": "/fiber/lib"},
        ],
    });
    spec["containers"].as_array_mut().expect("they are a list").insert(0, proxy);
    let started = StartedSession::under(engine, &own_name("test"));
    let (labels, annotations) = (&job["metadata"]["labels"], &job["metadata"]["annotations"]);
    let own = json!({
        "name": started.name, "namespace": namespace(), "labels": labels, "annotations": annotations,
    });
    apply(match kind {
        "Pod" => json!({"apiVersion": "v1", "kind": kind, "metadata": own, "spec": spec}),
        _ => json!({"apiVersion": "batch/v1", "kind": kind, "metadata": own, "spec": {
            "backoffLimit": 1,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        }}),
    });
    started
}

#[trial]
fn a_program_behind_a_proxy_is_the_one_that_commands_mean(engine: &'static dyn Engine) {
    let started = create_behind_a_proxy(engine, "Pod", "ready");
    let name = started.name.as_str();
    started.wait_until("it runs", |session| session["state"] == "running");
    fiber(engine, &["logs", "--follow", name]).start().line("ready: 2");
    fiber(engine, &["top", "--once", name]).run().code(0).says(&["2/2"]);
    fiber(engine, &["stack", name]).run().code(0).says(&["fiber-runtime"]);
    fiber(engine, &["kill", name]).run().code(0);
    assert!(engine.units_of(name).is_empty());

    // The proxy keeps the pod of a program that has ended.
    let done = create_behind_a_proxy(engine, "Job", "pi");
    fiber(engine, &["wait", &done.name]).run().code(0);
    let listed = done.listed();
    assert_eq!(
        (&listed["state"], &listed["exit_code"]),
        (&"ended".into(), &0.into()),
        "{listed:#}"
    );
    fiber(engine, &["kill", &done.name]).run().code(0);
}

#[trial]
fn a_session_that_a_user_may_not_watch_goes_on(engine: &'static dyn Engine) {
    let directory = TempDir::new().expect("there is room");
    let user = own_name("user");
    let file = kubeconfig::of_user(directory.path(), &user);
    let namespace = TestNamespace::new(&[]);
    for role in ["fiber", "fiber-command"] {
        let mut object = get(&["role", role, "--namespace", &namespace.name]);
        for rule in object["rules"].as_array_mut().expect("they are a list") {
            rule["verbs"].as_array_mut().expect("they are a list").retain(|verb| verb != "watch");
        }
        apply(&object);
        let (binding, role) = (format!("{user}-{role}"), format!("--role={role}"));
        let user = format!("--user={user}");
        kubectl(&["create", "rolebinding", &binding, &role, &user, "--namespace", &namespace.name]);
    }
    let as_user = |setup: Setup| {
        setup.env("KUBECONFIG", &file).env("FIBER_KUBERNETES_NAMESPACE", &namespace.name)
    };
    let name = own_name("test");
    let missing = ["goes on", "cannot watch resource \"pods\"", &format!("`fiber kill {name}`")];
    fails(as_user(run(engine, &["--name", &name], "waits")), 125, &missing);
    wait_until("it runs", || {
        namespace.pods().iter().any(|pod| pod["status"]["phase"] == "Running")
    });
    // Its output can be followed, and a signal ends the command whose watch is refused.
    let attached = as_user(fiber(engine, &["attach", "--from-start", &name])).start();
    attached.line("waits");
    attached.signal(Signal::TERM);
    attached.end().code(128 + Signal::TERM.as_raw());
    as_user(fiber(engine, &["kill", &name])).run().code(0);
    wait_until("its pod is gone", || namespace.pods().is_empty());
    // As the command of a Job that it may not watch.
    let name = own_name("test");
    let job = ["-a", "--restarts", "1", "--cpu", "1000", "--name", &name];
    fails(as_user(run(engine, &job, "exit 3")), 125, &["goes on", "cannot watch"]);
}

#[trial]
fn a_head_whose_pod_is_drained_or_deleted_is_started_again(engine: &'static dyn Engine) {
    let volume = TestVolume::new(engine);
    let (session, attached) = crate::restarts::resuming(engine, &volume, 2);
    attached.line("waits");
    evict(&pod_of_job(&session.name));
    attached.line("start 2");
    attached.line("waits");
    let lost = pod_of_job(&session.name);
    kubectl(&["delete", "pod", &lost, "--namespace", namespace(), "--force", "--grace-period=0"]);
    attached.line("start 3");
    attached.line("left: 2");
}

/// It is created, and waits without its command.
#[trial]
fn a_run_that_nobody_follows_does_not_wait_for_room(engine: &'static dyn Engine) {
    let name = own_name("test");
    let options = ["--cpu", "1000", "--name", &name];
    let waits = format!("the pod {name} waits: 0/");
    let errors = run(engine, &options, "pi").run().code(0).errors;
    assert!(errors.contains(&waits) && errors.contains("Insufficient cpu"), "{errors}");
    fiber(engine, &["kill", "--now", &name]).run().code(0);

    let followed = run(engine, &["-a", "--cpu", "1000", "--name", &name], "pi");
    let followed = followed.env("FIBER_SCHEDULE_TIMEOUT", "3s").start();
    let said = followed.error("");
    assert!(said.contains(&waits), "{said}");
    // A command that has lost its terminal goes on until the start.
    followed.signal(Signal::HUP);
    let errors = followed.end().code(125).errors;
    assert!(errors.contains("not scheduled within 3s"), "{errors}");
}

/// Evicts a pod like `kubectl drain`.
fn evict(pod: &str) {
    let eviction = |version: &str| {
        let eviction = serde_json::json!({
            "apiVersion": version,
            "kind": "Eviction",
            "metadata": { "name": pod, "namespace": namespace() },
        });
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", namespace());
        try_send("create", &path, &eviction)
    };
    // Clusters before 1.22 know only an earlier version of this API.
    eviction("policy/v1").or_else(|_| eviction("policy/v1beta1")).expect("it is evicted");
}

#[trial]
fn a_graphics_processor_is_waited_for(engine: &'static dyn Engine) {
    let _gpus = Gpus::new(1);
    let holder = StartedSession::new(engine, &["--gpu", "1"], "ready");
    let listed = holder.wait_until("it has it", |session| session["state"] == "running");
    assert_eq!(listed["gpu"], 1);

    let name = own_name("test");
    let waiting =
        run(engine, &["-a", "--gpu", "1", "--name", &name], "exit 3").in_a_terminal().start();
    let scheduled = "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}";
    let get = ["get", "pod", &name, "--namespace", namespace(), "-o", scheduled];
    wait_until("there is none left", || {
        try_kubectl(&get).is_ok_and(|reason| reason == "Unschedulable")
    });
    fiber(engine, &["kill", "--now", &holder.name]).run().code(0);
    // A terminal shows what the pod waits for.
    let step = format!("starting the pod {name}");
    waiting.end().code(3).says(&[&format!("{step}: 0/"), &format!("✓ {step} ("), "said"]);
}
