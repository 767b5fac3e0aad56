//! Kubernetes, with a namespace for these tests that has the rights of fiber's manifest.

use fiber_test_support::kubectl::{apply, get, nodes, registry, try_kubectl};
use fiber_test_support::{is_there, processes};
use serde_json::{Value, json};

use super::Engine;

pub(crate) struct Kubernetes;

/// `make test-cluster` removes it.
pub(crate) fn namespace() -> &'static str {
    "fiber-test-command"
}

/// Creates a namespace, if there is none, with the rights of fiber's manifest.
fn prepare(name: &str) -> Result<(), String> {
    match try_kubectl(&["create", "namespace", name]) {
        Err(problem) if !problem.contains("AlreadyExists") => return Err(problem),
        _ => {}
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/rbac.yaml");
    let shipped = std::fs::read_to_string(path).expect("it is shipped");
    apply(shipped.replace("namespace: fiber", &format!("namespace: {name}")));
    Ok(())
}

/// A namespace of one test. Dropping this removes it.
pub(crate) struct TestNamespace {
    pub(crate) name: String,
}

impl TestNamespace {
    pub(crate) fn new(labels: &[&str]) -> TestNamespace {
        let name = super::own_name(namespace());
        prepare(&name).expect("it is created");
        for label in labels {
            try_kubectl(&["label", "namespace", &name, label]).expect("it is labelled");
        }
        TestNamespace { name }
    }

    /// Returns its pods.
    pub(crate) fn pods(&self) -> Vec<Value> {
        let mut list = get(&["pods", "--namespace", &self.name]);
        serde_json::from_value(list["items"].take()).expect("it is a list")
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let removed = try_kubectl(&["delete", "namespace", &self.name, "--wait=false"]);
        if let Err(problem) = removed {
            eprintln!("the namespace {} can't be removed: {problem}", self.name);
        }
    }
}

/// Returns the names of the pods that satisfy a condition.
fn pods(wanted: impl Fn(&Value) -> bool) -> Vec<String> {
    let list = get(&["pods", "--namespace", namespace()]);
    let pods = list["items"].as_array().expect("it is a list").iter().filter(|pod| wanted(pod));
    pods.filter_map(|pod| pod["metadata"]["name"].as_str().map(String::from)).collect()
}

/// Returns the pod of a head that Kubernetes starts again.
pub(crate) fn pod_of_job(head: &str) -> String {
    let running = |pod: &Value| {
        pod["metadata"]["labels"]["job-name"] == head
            && pod["status"]["phase"] == "Running"
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    pods(running).pop().expect("it runs")
}

/// Returns the directory of a claim's volume on its node.
fn directory(claim: &str) -> String {
    format!("/tmp/{}-{claim}", namespace())
}

impl Engine for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn unit(&self) -> &'static str {
        "pod"
    }

    fn separates_streams(&self) -> bool {
        false
    }

    fn set_up(&self) {
        is_there(self.name(), || prepare(namespace()));
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let registry = registry().map(|registry| ("FIBER_REGISTRY", registry));
        [("FIBER_KUBERNETES_NAMESPACE", namespace().to_string())]
            .into_iter()
            .chain(registry)
            .collect()
    }

    fn units_of(&self, head: &str) -> Vec<String> {
        // The pods of a Job have its name with a suffix.
        let owners = [format!("pod {head} "), format!("pod {head}-")];
        pods(|pod| {
            let owned = pod["metadata"]["annotations"]["fiber.owner"].as_str();
            pod["metadata"]["name"] == head
                || pod["metadata"]["labels"]["job-name"] == head
                || owners.iter().any(|owner| owned.is_some_and(|text| text.starts_with(owner)))
        })
    }

    fn users_of(&self, claim: &str) -> Vec<String> {
        pods(|pod| {
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            volumes.into_iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == claim)
        })
    }

    fn kill(&self, name: &str) {
        processes::kill(namespace(), name);
    }

    fn lose(&self, head: &str) {
        processes::kill(namespace(), &pod_of_job(head));
    }

    fn create_volume(&self, claim: &str) {
        let volume = format!("{}-{claim}", namespace());
        let size = json!({ "storage": "1Gi" });
        let node = &nodes()[0]["metadata"]["labels"]["kubernetes.io/hostname"];
        let objects = json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": { "name": volume }, "spec": {
                "capacity": size, "accessModes": ["ReadWriteMany"], "storageClassName": "",
                "hostPath": { "path": directory(claim), "type": "DirectoryOrCreate" },
                "claimRef": { "namespace": namespace(), "name": claim },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
                ] }] } },
            } },
            { "apiVersion": "v1", "kind": "PersistentVolumeClaim",
              "metadata": { "name": claim, "namespace": namespace() }, "spec": {
                "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": volume,
                "resources": { "requests": size },
            } },
        ] });
        apply(objects);
    }

    fn remove_volume(&self, claim: &str) {
        let volume = format!("{}-{claim}", namespace());
        let removed = try_kubectl(&["delete", "pvc", claim, "--namespace", namespace()])
            .and_then(|_| try_kubectl(&["delete", "pv", &volume]))
            // The node may be this host.
            .and_then(|_| match std::fs::remove_dir_all(directory(claim)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error.to_string())
                }
                _ => Ok(()),
            });
        if let Err(problem) = removed {
            eprintln!("the volume {claim} can't be removed: {problem}");
        }
    }

    fn absence(&self) -> (&'static [(&'static str, &'static str)], &'static [&'static str]) {
        (&[("KUBECONFIG", "/no/such/kubeconfig")], &["no cluster is configured", "KUBECONFIG"])
    }
}
