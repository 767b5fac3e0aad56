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

/// Returns the version of the engine, or why there is none.
pub fn version() -> Result<String, String> {
    try_docker(&["version", "--format", "{{.Server.Version}}"])
}
