//! The commands of Slurm, each with a time limit.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// The time limit of a command. Without its controller, Slurm's commands wait for minutes.
const LIMIT: Duration = Duration::from_secs(30);
/// Variables that change what the commands ask for or print, besides those of an allocation.
const CHANGING: [&str; 3] = ["SQUEUE_", "SINFO_", "SACCT_"];
/// Variables that make several jobs of one, or `sbatch` wait for its end.
const MANIFOLD: [&str; 2] = ["SBATCH_ARRAY_INX", "SBATCH_WAIT"];
/// The variables of Slurm that say which cluster is meant.
const KEPT: [&str; 3] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS"];

/// Returns a command in an environment without the variables of an allocation, which are options
/// of all commands.
pub(super) fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    for (variable, _) in std::env::vars_os() {
        let text = variable.to_string_lossy();
        let is_of_allocation = text.starts_with("SLURM_") && !KEPT.contains(&&*text);
        if is_of_allocation || CHANGING.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&variable);
        }
    }
    // Times as seconds since 1970, and messages that can be compared.
    command.env("SLURM_TIME_FORMAT", "%s").env("LC_ALL", "C");
    command
}

pub(super) async fn squeue(arguments: &[&str]) -> Result<String, String> {
    run("squeue", arguments, "").await
}

pub(super) async fn sinfo(arguments: &[&str]) -> Result<String, String> {
    run("sinfo", arguments, "").await
}

pub(super) async fn scontrol(arguments: &[&str]) -> Result<String, String> {
    run("scontrol", arguments, "").await
}

pub(super) async fn sacct(arguments: &[&str]) -> Result<String, String> {
    run("sacct", arguments, "").await
}

/// Submits a batch script. The job gets this process's environment.
pub(super) async fn sbatch(arguments: &[&str], script: &str) -> Result<String, String> {
    run("sbatch", arguments, script).await
}

/// Cancels or signals a job or a step. One that has ended is no error.
pub(super) async fn scancel(arguments: &[&str]) -> Result<(), String> {
    match run("scancel", arguments, "").await {
        Err(problem) if problem.contains("already completing or completed") => Ok(()),
        Err(problem) if problem.contains("Invalid job id") => Ok(()),
        other => other.map(drop),
    }
}

async fn run(name: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = command(name);
    command.args(arguments).kill_on_drop(true);
    if name == "sbatch" {
        for variable in MANIFOLD {
            command.env_remove(variable);
        }
        // The job inherits the environment.
        command.env_remove("SLURM_TIME_FORMAT").env_remove("LC_ALL");
        for variable in ["SLURM_TIME_FORMAT", "LC_ALL"] {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| not_run(name, &error))?;
    let ended = async {
        if let Some(mut pipe) = child.stdin.take() {
            // A command that fails early does not read it all.
            let _ = pipe.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(LIMIT, ended)
        .await
        .map_err(|_| {
            format!("`{name}` has not answered within {LIMIT:?}: Slurm's controller may be down")
        })?
        .map_err(|error| format!("`{name}` can't be waited for: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_string());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = told
        .lines()
        .map(|line| line.trim_start_matches(&format!("{name}: ")).trim_start_matches("error: "))
        .filter(|line| !line.trim().is_empty())
        .collect();
    Err(match lines.is_empty() {
        true => format!("`{name}` failed ({})", output.status),
        false => format!("`{name}`: {}", lines.join("; ")),
    })
}

/// Returns the problem if a command can't be started.
pub(super) fn not_run(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no command `{name}` in PATH: run this on a login node of a Slurm cluster, or \
             load its module (`module load slurm`)"
        ),
        _ => format!("the command `{name}` can't be run: {error}"),
    }
}
