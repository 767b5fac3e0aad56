//! Kubernetes' own way.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{BARE, Engine};

/// Nodes clean up for a while after pods have gone, which can't be seen from outside.
const CLEANING: Duration = Duration::from_secs(4);
/// The label of the bare pods.
const LABEL: &str = "bench=bare";

/// The cluster's version, if one answers.
pub(super) fn version() -> Option<String> {
    let version: Value =
        serde_json::from_str(&kubectl(&["get", "--raw", "/version"], "").ok()?).ok()?;
    version["gitVersion"].as_str().map(str::to_string)
}

/// The parts of a worker's pod.
pub(super) struct Model {
    image: Value,
    program: Value,
    environment: Vec<Value>,
    /// The address to which a worker connects.
    host: String,
}

impl Model {
    pub(super) fn of_a_worker() -> anyhow::Result<Model> {
        let owner = format!("process {} ", std::process::id());
        let pods: Value = serde_json::from_str(&kubectl(
            &["get", "pods", "-l", "fiber.session", "-o", "json"],
            "",
        )?)?;
        let mut pods = pods["items"].as_array().context("it is a list")?.iter();
        let owned = |pod: &&Value| {
            pod["metadata"]["annotations"]["fiber.owner"]
                .as_str()
                .is_some_and(|text| text.starts_with(&owner))
        };
        let container = &pods.find(owned).context("a worker has a pod")?["spec"]["containers"][0];
        let variables = container["env"].as_array().context("it has some")?;
        let variable = |name: &str| variables.iter().find(|variable| variable["name"] == name);
        let parent = variable("FIBER_PARENT")
            .and_then(|variable| variable["value"].as_str())
            .context("it has a parent")?;
        let (_, address) = parent.rsplit_once("://").context("its address is a URL")?;
        let (host, _) = address.rsplit_once(':').context("with a port")?;
        Ok(Model {
            image: container["image"].clone(),
            program: container["command"][0].clone(),
            environment: variable("LD_LIBRARY_PATH").cloned().into_iter().collect(),
            host: host.to_string(),
        })
    }

    fn pod(&self, index: usize, address: &str) -> Value {
        let mut environment = self.environment.clone();
        environment.push(json!({"name": BARE, "value": address}));
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("bench-{}-{index}", std::process::id()),
                "labels": {"bench": "bare"},
            },
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "main",
                    "image": self.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": [self.program],
                    "env": environment,
                }],
            },
        })
    }
}

impl Engine for Model {
    fn settle(&self) -> anyhow::Result<()> {
        std::thread::sleep(CLEANING);
        Ok(())
    }

    fn run_bare(&self, count: usize) -> anyhow::Result<Duration> {
        let listener = TcpListener::bind((self.host.as_str(), 0))?;
        let address = listener.local_addr()?.to_string();
        let path = format!("/api/v1/namespaces/{}/pods", namespace()?);
        let start = Instant::now();
        let mut runs = Vec::new();
        for index in 0..count {
            runs.push(start_kubectl(
                &["create", "--raw", &path, "-f", "-"],
                &self.pod(index, &address).to_string(),
            )?);
        }
        for _ in 0..count {
            listener.accept()?;
        }
        let time = start.elapsed();
        for mut run in runs {
            ensure!(run.wait()?.success(), "a bare pod was refused");
        }
        kubectl(&["delete", "pods", "-l", LABEL], "")?;
        Ok(time)
    }
}

fn namespace() -> anyhow::Result<String> {
    let namespace = kubectl(&["config", "view", "--minify", "-o", "jsonpath={..namespace}"], "")?;
    Ok(if namespace.is_empty() { "default".into() } else { namespace })
}

fn start_kubectl(arguments: &[&str], input: &str) -> anyhow::Result<Child> {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // It may not want any.
    let _ = child.stdin.take().context("it is piped")?.write_all(input.as_bytes());
    Ok(child)
}

fn kubectl(arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let output = start_kubectl(arguments, input)?.wait_with_output()?;
    ensure!(
        output.status.success(),
        "kubectl {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
