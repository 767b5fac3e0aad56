//! Runs the lines of jobs on this host, for tests.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use super::COMMAND;
use crate::JobSpec;

/// Returns a job with these arguments and the secret `KEY`.
pub(crate) fn spec(arguments: &[&str]) -> JobSpec {
    JobSpec {
        arguments: arguments.iter().map(Into::into).collect(),
        secrets: vec![("KEY", "hush".into())],
        log_dir: "/tmp".into(),
        ..JobSpec::new("worker")
    }
}

/// Runs a line in a group of its own, as commands that reach machines do.
pub(crate) fn run(line: &[u8]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", COMMAND]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(line).unwrap();
    let output = shell.stdout.take().unwrap();
    let text = std::io::read_to_string(output).unwrap();
    // The end of its input would end the shell before the program's end is reported.
    let status = shell.wait().unwrap();
    drop(input);
    let mut errors = String::new();
    shell.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    Output { status, stdout: text.into_bytes(), stderr: errors.into_bytes() }
}
