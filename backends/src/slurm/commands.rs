//! Slurm's commands: each with a time limit, and errors that name the command and a remedy.
//!
//! Their default output differs between versions and sites, so each call asks for its fields.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::time::timeout;

/// Time limit for a command. A busy slurmctld answers late; Slurm's own limit for a message is 10 s.
const LIMIT: Duration = Duration::from_secs(30);
/// Separates the fields of an answer. Names and comments of jobs may contain all that can be typed.
const SEPARATOR: char = '\u{1f}';
/// The variables by which users change what the commands list, and how.
const PRESENTATION: &[&str] = &["SQUEUE_", "SINFO_"];
/// Variables that make several jobs of one, or `sbatch` wait for its end.
const MANIFOLD: &[&str] = &["SBATCH_ARRAY_INX", "SBATCH_WAIT"];

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// It can't be run.
    NotRun { program: &'static str, error: io::Error },
    /// It did not end in time.
    TimedOut { program: &'static str, limit: Duration },
    /// It failed, with this on standard error.
    Failed { program: &'static str, words: String },
}

impl CommandError {
    /// Returns whether Slurm may answer the same request later: it is busy, restarted or out of
    /// reach.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            CommandError::NotRun { .. } => false,
            CommandError::TimedOut { .. } => true,
            CommandError::Failed { words, .. } => is_out_of_reach(&words.to_lowercase()),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::NotRun { program, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "the command `{program}` is missing: run this on a host with Slurm's commands, \
                     such as a login node, and check `PATH` (often `module load slurm`)"
                )
            }
            CommandError::NotRun { program, error } => {
                write!(f, "`{program}` can't be run: {}", fiber_core::shortage::explain(error))
            }
            CommandError::TimedOut { program, limit } => write!(
                f,
                "`{program}` did not end within {limit:?}: does slurmctld answer? See `scontrol ping`"
            ),
            CommandError::Failed { program, words } => {
                write!(f, "`{program}` failed: {words}")?;
                remedy(words).map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
            }
        }
    }
}

fn is_out_of_reach(words: &str) -> bool {
    ["unable to contact", "timed out", "connection refused", "communication", "try again"]
        .iter()
        .any(|sign| words.contains(sign))
}

/// Returns what to do about a failure. The words differ between versions of Slurm, so this looks for
/// parts of them.
fn remedy(words: &str) -> Option<&'static str> {
    let words = words.to_lowercase();
    let has = |part: &str| words.contains(part);
    Some(if is_out_of_reach(&words) {
        "does slurmctld answer? See `scontrol ping`"
    } else if has("account") {
        "name an account that may submit to this partition (`slurm_account`); `sacctmgr show \
         associations user=$USER` lists yours"
    } else if has("qos") {
        "name a quality of service that you may use (`slurm_qos`); `sacctmgr show qos` lists them"
    } else if has("partition") {
        "name a partition that exists (`slurm_partition`); `sinfo -o '%P %l'` lists them"
    } else if has("node configuration") || has("node count") || has("memory") || has("processors") {
        "ask for no more than the nodes have; `sinfo -o '%P %D %c %m %G'` lists their number, cores, \
         memory and GPUs"
    } else if has("time limit") {
        "ask for less time (`slurm_time`); `sinfo -o '%P %l'` lists the limits of the partitions"
    } else if has("configuration source") || has("slurm.conf") {
        "this host has no configuration of Slurm: set `SLURM_CONF`, or run this on a login node"
    } else {
        return None;
    })
}

/// Runs a command and returns its standard output.
pub(crate) async fn run<A: AsRef<OsStr>>(
    program: &'static str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, CommandError> {
    run_within(LIMIT, program, arguments).await
}

async fn run_within<A: AsRef<OsStr>>(
    limit: Duration,
    program: &'static str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, CommandError> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("SLURM_TIME_FORMAT", "standard")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        if PRESENTATION.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
        {
            command.env_remove(name);
        }
    }
    for name in MANIFOLD {
        command.env_remove(name);
    }
    let child = command.spawn().map_err(|error| CommandError::NotRun { program, error })?;
    let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let Ok(output) = timeout(limit, child.wait_with_output()).await else {
        // Many sites wrap the commands in scripts.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        return Err(CommandError::TimedOut { program, limit });
    };
    let output = output.map_err(|error| CommandError::NotRun { program, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = words_of(&String::from_utf8_lossy(&output.stderr), program);
    let words = if words.is_empty() { output.status.to_string() } else { words };
    Err(CommandError::Failed { program, words })
}

/// Returns what a command said, as one line without its own name.
fn words_of(text: &str, program: &str) -> String {
    let own = format!("{program}: ");
    let lines = text.lines().map(|line| {
        let line = line.strip_prefix(&own).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line).trim()
    });
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// A job in Slurm's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuedJob {
    pub(crate) id: u32,
    /// `PENDING`, `RUNNING`, …
    pub(crate) state: String,
    /// Why it is in this state: `Priority`, `Resources`, …
    pub(crate) reason: String,
    pub(crate) name: String,
    pub(crate) comment: String,
}

/// Returns the jobs of this user that Slurm still knows, also those that ended some minutes ago.
pub(crate) async fn jobs_of_this_user() -> Result<Vec<QueuedJob>, CommandError> {
    let fields = ["%A", "%T", "%r", "%j", "%k"].join(&SEPARATOR.to_string());
    let user = rustix::process::getuid().as_raw().to_string();
    let answer = run("squeue", ["-h", "-t", "all", "-u", &user, "-o", &fields]).await?;
    Ok(answer.lines().filter_map(queued_job).collect())
}

fn queued_job(line: &str) -> Option<QueuedJob> {
    let mut fields = line.split(SEPARATOR).map(str::trim);
    Some(QueuedJob {
        id: fields.next()?.parse().ok()?,
        state: fields.next()?.to_string(),
        reason: fields.next()?.to_string(),
        name: fields.next()?.to_string(),
        comment: fields.next()?.to_string(),
    })
}

/// Parses Slurm's `[DAYS-][[HOURS:]MINUTES:]SECONDS`.
fn time(text: &str) -> Option<Duration> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let seconds =
        rest.split(':').try_fold(0, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?));
    Some(Duration::from_secs(days * 86_400 + seconds?))
}

/// Returns the time that is left to a job, if it is limited.
pub(crate) async fn time_left(job: &str) -> Result<Option<Duration>, CommandError> {
    Ok(time(run("squeue", ["-h", "-j", job, "-o", "%L"]).await?.trim()))
}

/// Returns the fields of a job: `JobState`, `ExitCode`, ….
pub(crate) async fn job_fields(job: &str) -> Result<Vec<(String, String)>, CommandError> {
    let answer = run("scontrol", ["show", "job", "-o", job]).await?;
    let fields = answer.split_whitespace().filter_map(|word| word.split_once('='));
    Ok(fields.map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

/// Returns the names of the nodes in a list such as `n[1-3]`.
pub(crate) async fn host_names(list: &str) -> Result<Vec<String>, CommandError> {
    let answer = run("scontrol", ["show", "hostnames", list]).await?;
    Ok(answer.split_whitespace().map(String::from).collect())
}

/// Returns the address of a node, or of any node of the cluster without one.
pub(crate) async fn node_address(node: Option<&str>) -> Result<Option<String>, CommandError> {
    let selection = node.map(|name| format!("--nodes={name}"));
    let arguments = ["-h", "-N", "-o", "%o"].into_iter().chain(selection.as_deref());
    Ok(run("sinfo", arguments).await?.split_whitespace().next().map(String::from))
}

/// Cancels a job or a step (`JOB.STEP`), or sends it a signal.
pub(crate) async fn cancel(arguments: &[&str]) -> Result<(), CommandError> {
    run("scancel", arguments).await.map(drop)
}

/// Submits a job, and returns its id.
pub(crate) async fn submit(arguments: Vec<OsString>) -> Result<u32, CommandError> {
    let program = "sbatch";
    let answer = run(program, [OsString::from("--parsable")].into_iter().chain(arguments)).await?;
    // `ID`, or `ID;CLUSTER`. A site's plugins may print lines before it.
    let id = answer.lines().rev().find_map(|line| line.split(';').next()?.trim().parse().ok());
    id.ok_or_else(|| CommandError::Failed {
        program,
        words: format!("it names no job: {:?}", answer.trim()),
    })
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
        assert_eq!(seconds("INVALID"), None);
    }

    #[test]
    fn a_job_is_parsed_whatever_its_name() {
        let job = queued_job("4\u{1f}RUNNING\u{1f}None\u{1f}a|b c\u{1f}(null)").unwrap();
        assert_eq!((job.id, &*job.name, &*job.comment), (4, "a|b c", "(null)"));
        assert_eq!(queued_job("slurm_load_jobs error: Invalid job id specified"), None);
    }

    #[test]
    fn failures_name_the_remedy() {
        let failure = |words: &str| {
            let words = words_of(words, "sbatch");
            CommandError::Failed { program: "sbatch", words }.to_string()
        };
        let partition = failure(
            "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission \
             failed: Invalid partition name specified",
        );
        assert!(
            partition.starts_with("`sbatch` failed: invalid partition specified: nope; Batch")
                && partition.contains("`slurm_partition`"),
            "{partition}"
        );
        let account = failure("Invalid account or account/partition combination specified");
        assert!(account.contains("slurm_account"), "{account}");
        let nodes = failure("Requested node configuration is not available");
        assert!(nodes.contains("no more than the nodes have"), "{nodes}");
        let limit = failure("Requested time limit is invalid (missing or exceeds some limit)");
        assert!(limit.contains("slurm_time"), "{limit}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_or_is_missing_is_named() {
        let hangs = run_within(Duration::from_millis(50), "sleep", ["60"]).await.unwrap_err();
        assert!(hangs.is_passing() && hangs.to_string().contains("`sleep` did not end"), "{hangs}");
        let missing = run("fiber-no-such-command", [""; 0]).await.unwrap_err();
        assert!(missing.to_string().contains("`fiber-no-such-command` is missing"), "{missing}");
    }
}
