//! Commands of other programs, with a time limit.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::wait::LONG;

/// Returns the entry of a session in the output of `fiber ps --json`; `Null` if there is none.
pub fn listed(output: &str, name: &str) -> Value {
    let sessions: Value = serde_json::from_str(output).expect("it is JSON");
    let own = |session: &&Value| session["name"] == name;
    sessions.as_array().expect("it is a list").iter().find(own).cloned().unwrap_or_default()
}

/// Runs a command, and returns its output.
///
/// # Errors
/// Its standard error, or a message that it did not end in time.
pub fn output(name: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| format!("the command `{name}` can't be run: {error}"))?;
    let pid = Pid::from_child(&child);
    // The command may not read its input.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(LONG) else {
        // Its thread has not reaped it yet, so the process id is still its own.
        let _ = kill_process(pid, Signal::KILL);
        return Err(format!("`{name} {}` did not end within {LONG:?}", arguments.join(" ")));
    };
    let output =
        output.map_err(|error| format!("the command `{name}` can't be waited for: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
