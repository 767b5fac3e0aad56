//! Programs in a pod, with the rights of fiber's manifest and no others.

use std::sync::OnceLock;

use fiber_test_support::kubectl::{apply, get, kubectl, try_kubectl};
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use serde_json::{Value, json};

use crate::cluster::{Object, new_name, own_image, text};

/// The namespace of the manifest.
const NAMESPACE: &str = "fiber";

/// A program in a pod of its own. Dropping this deletes the pod.
struct ProgramInPod {
    name: String,
    _object: Object,
}

impl ProgramInPod {
    fn start(scenario: &str, account: &str, change: impl FnOnce(&mut Value)) -> ProgramInPod {
        static READY: OnceLock<()> = OnceLock::new();
        let own = own_image();
        READY.get_or_init(|| {
            apply(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            );
            apply(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/deploy/kubernetes/rbac.yaml"
            )));
            // Kubernetes creates it a moment after the namespace.
            wait_until("there are service accounts", || {
                try_kubectl(&["-n", NAMESPACE, "get", "serviceaccount", "default"]).is_ok()
            });
        });
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        let name = new_name();
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "restartPolicy": "Never",
                "serviceAccountName": account,
                "containers": [{
                    "name": "program",
                    "image": own.image,
                    "command": [own.program],
                    "env": [
                        variable("LD_LIBRARY_PATH", &own.libraries),
                        variable("SCENARIO", scenario),
                        variable("FIBER_BACKEND", "kubernetes"),
                        variable("FIBER_ENVIRONMENT", "SCENARIO"),
                        variable("FIBER_NESTED", "true"),
                    ],
                }],
            },
        });
        change(&mut pod);
        apply(&pod);
        ProgramInPod { _object: Object::new(&["-n", NAMESPACE, "pod", &name]), name }
    }

    /// Waits until the program prints this, and returns its output so far.
    fn says(&self, words: &str) -> String {
        let logs = || try_kubectl(&["-n", NAMESPACE, "logs", &self.name]).unwrap_or_default();
        wait_until(words, || logs().contains(words));
        logs()
    }

    fn ended(&self, phase: &str) {
        wait_until("it has ended", || {
            let now = get(&["-n", NAMESPACE, "pod", &self.name])["status"]["phase"].take();
            assert!(now == phase || ["Pending", "Running"].contains(&text(&now)), "{now}");
            now == phase
        });
    }

    /// Returns all objects of a kind that the pod owns.
    fn owned(&self, kind: &str) -> Vec<Value> {
        let Value::Array(all) = get(&["-n", NAMESPACE, kind])["items"].take() else {
            panic!("it is a list")
        };
        let owned =
            |item: &Value| item["metadata"]["ownerReferences"][0]["name"] == self.name.as_str();
        all.into_iter().filter(owned).collect()
    }
}

#[trial]
fn a_program_in_a_pod_has_pods_of_its_own() {
    let inside = ProgramInPod::start("hosts", "fiber", |_| {});
    let said = inside.says("child:");
    let host = |who: &str| {
        said.lines().find_map(|line| line.strip_prefix(who)).expect(who).trim().to_string()
    };
    assert!(host("parent:") == inside.name && host("child:").starts_with("fiber-"), "{said}");
    inside.ended("Succeeded");
    wait_until("its pods are gone", || {
        inside.owned("pods").is_empty() && inside.owned("secrets").is_empty()
    });
}

#[trial]
fn pools_in_pools_go_with_the_pod_that_began() {
    let inside = ProgramInPod::start("family", "fiber", |_| {});
    inside.says("squares: [[0, 1, 4], [100, 121, 144]]");
    inside.says("nested: done");
    let children = inside.owned("pods");
    assert_eq!(children.len(), 2);
    let family = || get(&["-n", NAMESPACE, "pods,secrets", "-l", "fiber.session"])["items"].take();
    let sessions = |items: Value| -> Vec<String> {
        let sessions = items.as_array().expect("it is a list").iter();
        sessions
            .map(|item| text(&item["metadata"]["labels"]["fiber.session"]).to_string())
            .collect()
    };
    let session = text(&children[0]["metadata"]["labels"]["fiber.session"]).to_string();
    kubectl(&["-n", NAMESPACE, "delete", "pod", &inside.name, "--force", "--grace-period=0"]);
    // Kubernetes deletes the pod's objects, and theirs in turn.
    wait_until("its family is gone", || {
        !sessions(family()).contains(&session) && inside.owned("pods").is_empty()
    });
}

#[trial]
fn without_rights_the_missing_one_is_named() {
    let inside = ProgramInPod::start("one task", "default", |_| {});
    let said = inside.says("error: ");
    let words = "User \"system:serviceaccount:fiber:default\" cannot get resource \"pods\"";
    assert!(
        said.contains(words) && said.contains("kubectl apply -f deploy/kubernetes/rbac.yaml)"),
        "{said}"
    );
    inside.ended("Succeeded");
}

#[trial]
fn pods_inherit_from_their_parents_pod() {
    let inside = ProgramInPod::start("ready", "fiber", |pod| {
        let spec = &mut pod["spec"];
        spec["volumes"] = json!([{"name": "data", "hostPath": {"path": "/tmp"}}]);
        spec["containers"][0]["volumeMounts"] =
            json!([{"name": "data", "mountPath": "/persistent", "readOnly": true}]);
        spec["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
        spec["tolerations"] = json!([{"key": "fiber-test", "operator": "Exists"}]);
        spec["imagePullSecrets"] = json!([{"name": "registry"}]);
    });
    inside.says("ready: 2");
    let own = get(&["-n", NAMESPACE, "pod", &inside.name]);
    for child in inside.owned("pods") {
        let (child, own) = (&child["spec"], &own["spec"]);
        for inherited in ["serviceAccountName", "nodeSelector", "imagePullSecrets"] {
            assert_eq!(child[inherited], own[inherited]);
        }
        let tolerations = child["tolerations"].as_array().expect("it has some");
        assert!(tolerations.iter().any(|toleration| toleration["key"] == "fiber-test"), "{child}");
        assert_eq!(child["containers"][0]["image"], own["containers"][0]["image"]);
        let mounts = child["containers"][0]["volumeMounts"].as_array().expect("it has some");
        assert!(
            mounts
                .iter()
                .any(|mount| mount["mountPath"] == "/persistent" && mount["readOnly"] == true),
            "{child}"
        );
        assert!(
            child["volumes"]
                .as_array()
                .expect("it has some")
                .iter()
                .any(|volume| volume["hostPath"]["path"] == "/tmp")
        );
    }
}
