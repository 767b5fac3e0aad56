//! The cluster as its own command line shows it.

use std::fmt::Display;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What `kubectl` prints, or what it complains about.
pub(crate) fn try_kubectl(arguments: &[&str]) -> Result<String, String> {
    told(arguments, "")
}

#[track_caller]
pub(crate) fn kubectl(arguments: &[&str]) -> String {
    try_kubectl(arguments).unwrap_or_else(|problem| panic!("kubectl {}: {problem}", arguments.join(" ")))
}

/// Has the cluster have these objects.
#[track_caller]
pub(crate) fn apply(objects: impl Display) {
    told(&["apply", "-f", "-"], &objects.to_string()).unwrap_or_else(|problem| panic!("{problem}: {objects}"));
}

/// Sends the API server an object: `verb` is `create` or `replace`.
pub(crate) fn try_send(verb: &str, path: &str, object: &Value) -> Result<String, String> {
    told(&[verb, "--raw", path, "-f", "-"], &object.to_string())
}

#[track_caller]
pub(crate) fn get(arguments: &[&str]) -> Value {
    let all = [&["get", "-o", "json"], arguments].concat();
    serde_json::from_str(&kubectl(&all)).expect("it is JSON")
}

fn told(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("kubectl can't be run: {error}"))?;
    // It may not want any.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
