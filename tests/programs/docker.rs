//! The Docker engine as its own command line shows it.

use std::process::Command;

/// What `docker` prints, or what it complains about.
pub(crate) fn try_docker(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(arguments).output().expect("the command `docker` is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[track_caller]
pub(crate) fn docker(arguments: &[&str]) -> String {
    try_docker(arguments).unwrap_or_else(|problem| panic!("docker {}: {problem}", arguments.join(" ")))
}

/// Ends this process with words if no engine is there.
pub(crate) fn must_answer() {
    if let Err(problem) = try_docker(&["version", "--format", "{{.Server.Version}}"]) {
        eprintln!("error: TEST_BACKENDS names docker, but no engine answers (`make cluster-up` starts one): {problem}");
        std::process::exit(1);
    }
}

/// Kills the process of a pod by its node's own means: pods are containers of this host's engine.
#[track_caller]
pub(crate) fn kill_pod(name: &str) {
    let pod = format!("label=io.kubernetes.pod.name={name}");
    let container = docker(&["ps", "-q", "--filter", &pod, "--filter", "label=io.kubernetes.container.name=fiber"]);
    docker(&["kill", container.lines().next().expect("it runs")]);
}
