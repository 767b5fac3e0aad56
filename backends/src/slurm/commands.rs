//! Slurm's commands: each with a time limit, and errors that name the command and a remedy.
//!
//! Their default output differs between versions and sites, so each call asks for its fields.

mod error;

use std::time::Duration;

use tokio::process::Command;

pub(super) use self::error::HINTS;
pub(super) use crate::batch::CommandError;
use crate::batch::{job_in, run_within};

/// Time limit for a command. A busy slurmctld answers late, and without one they wait for minutes.
const LIMIT: Duration = Duration::from_secs(30);
/// The variables by which users change what the commands list, and how.
const PRESENTATION: [&str; 3] = ["SQUEUE_", "SINFO_", "SACCT_"];
/// Variables that make several jobs of one, or `sbatch` wait for its end.
const MANIFOLD: [&str; 2] = ["SBATCH_ARRAY_INX", "SBATCH_WAIT"];
/// The variables of Slurm that say which cluster is meant, and who asks.
const KEPT: [&str; 5] =
    ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_SOCKET"];

/// Returns a command in an environment without the variables of an allocation, which are options
/// of all commands.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        let is_of_allocation = name.starts_with("SLURM_") && !KEPT.contains(&&*name);
        if is_of_allocation || PRESENTATION.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&variable);
        }
    }
    command
}

/// Runs a command and returns its standard output.
pub(super) async fn run(program: &'static str, arguments: &[&str]) -> Result<String, CommandError> {
    let mut command = command(program);
    // Times as seconds since 1970, and messages that can be compared.
    command.args(arguments).env("SLURM_TIME_FORMAT", "%s").env("LC_ALL", "C");
    run_within(LIMIT, program, &HINTS, command, "").await
}

/// Submits a batch script with options of the command line, and returns the id of its job. The job
/// gets this process's environment.
pub(super) async fn submit(options: &[String], script: &str) -> Result<String, CommandError> {
    let program = "sbatch";
    let mut command = command(program);
    for variable in MANIFOLD {
        command.env_remove(variable);
    }
    command.arg("--parsable").args(options);
    let answer = run_within(LIMIT, program, &HINTS, command, script).await?;
    job_in(&answer, program, &HINTS, "squeue --me")
}

/// Cancels a job or a step (`JOB.STEP`), or sends it a signal. One that has ended is no error.
pub(super) async fn cancel(arguments: &[&str]) -> Result<(), CommandError> {
    match run("scancel", arguments).await {
        Err(error) if error::is_about_an_ended_job(&error) => Ok(()),
        other => other.map(drop),
    }
}

/// Returns the time that is left to a job, if it is limited.
pub(super) async fn time_left(job: &str) -> Result<Option<Duration>, CommandError> {
    Ok(time(&run("squeue", &["-h", "-j", job, "-o", "%L"]).await?))
}

/// Parses Slurm's `[DAYS-][[HOURS:]MINUTES:]SECONDS`.
pub(super) fn time(text: &str) -> Option<Duration> {
    let (days, rest) = match text.trim().split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text.trim()),
    };
    let seconds =
        rest.split(':').try_fold(0, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?));
    Some(Duration::from_secs(days * 86_400 + seconds?))
}

/// Parses a size of Slurm's, in powers of 1024 and without a unit in megabytes: `1.50G`. Returns
/// bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match text[number.len()..].chars().next() {
        Some('K') => 1,
        Some('G') => 3,
        Some('T') => 4,
        _ => 2,
    };
    Some((number.parse::<f64>().ok()? * 1024f64.powi(power)) as u64)
}

/// Returns the fields of a job: `MinMemoryNode`, ….
pub(super) async fn job_fields(job: &str) -> Result<Vec<(String, String)>, CommandError> {
    let answer = run("scontrol", &["show", "job", "-o", job]).await?;
    let fields = answer.split_whitespace().filter_map(|word| word.split_once('='));
    Ok(fields.map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

/// Returns the names of the nodes in a list such as `n[1-3]`.
pub(super) async fn host_names(list: &str) -> Result<Vec<String>, CommandError> {
    let answer = run("scontrol", &["show", "hostnames", list]).await?;
    Ok(answer.split_whitespace().map(String::from).collect())
}

/// Returns the address of a node, or of any node of the cluster without one.
pub(super) async fn node_address(node: Option<&str>) -> Result<Option<String>, CommandError> {
    let selection = node.map(|name| format!("--nodes={name}"));
    let mut arguments = vec!["-h", "-N", "-o", "%o"];
    arguments.extend(selection.as_deref());
    Ok(run("sinfo", &arguments).await?.split_whitespace().next().map(String::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed() {
        let seconds = |text| time(text).map(|time| time.as_secs());
        assert_eq!(seconds("5:00"), Some(300));
        assert_eq!(seconds("2-03:04:05"), Some(2 * 86_400 + 3 * 3600 + 4 * 60 + 5));
        assert_eq!(seconds("UNLIMITED"), None);
        assert_eq!(seconds("infinite"), None);
    }
}
