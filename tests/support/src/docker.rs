//! The Docker engine, by its command line.

use crate::command::output;

/// Runs `docker`, and returns its output or its error.
pub fn try_docker(arguments: &[&str]) -> Result<String, String> {
    output("docker", arguments, "")
}

/// Runs `docker`, which must succeed, and returns its output.
#[track_caller]
pub fn docker(arguments: &[&str]) -> String {
    try_docker(arguments)
        .unwrap_or_else(|problem| panic!("docker {}: {problem}", arguments.join(" ")))
}

/// Ends this process with a message if there is no engine.
pub fn must_answer() {
    if let Err(problem) = try_docker(&["version", "--format", "{{.Server.Version}}"]) {
        eprintln!(
            "error: TEST_BACKENDS names docker, but no engine answers (`make cluster-up` starts \
             one): {problem}"
        );
        std::process::exit(1);
    }
}
