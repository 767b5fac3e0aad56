//! Failures of Slurm's commands, with remedies.

use std::fmt;
use std::io;
use std::time::Duration;

use fiber_core::shortage;

use crate::BackendError;

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
    /// Returns the failure of a command that printed `errors`, and nothing useful without any.
    pub(super) fn failed(
        program: &'static str,
        errors: &str,
        otherwise: impl fmt::Display,
    ) -> CommandError {
        let words = words_of(errors, program);
        let words = if words.is_empty() { otherwise.to_string() } else { words };
        CommandError::Failed { program, words }
    }

    /// Returns whether Slurm may answer the same request later: it is busy, restarted or out of
    /// reach.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            CommandError::NotRun { .. } => false,
            CommandError::TimedOut { .. } => true,
            CommandError::Failed { words, .. } => is_out_of_reach(&words.to_lowercase()),
        }
    }

    /// Returns whether `scancel` has failed because the job or step has ended.
    pub(super) fn is_about_an_ended_job(&self) -> bool {
        let signs = ["already completing or completed", "Invalid job id"];
        matches!(self, CommandError::Failed { words, .. }
            if signs.iter().any(|sign| words.contains(sign)))
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::NotRun { program, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "there is no command `{program}` in PATH: run this on a login node of a Slurm \
                     cluster, or load its module (`module load slurm`)"
                )
            }
            CommandError::NotRun { program, error } => {
                let problem = shortage::explain(error);
                write!(f, "the command `{program}` can't be run: {problem}")
            }
            CommandError::TimedOut { program, limit } => write!(
                f,
                "`{program}` has not answered within {limit:?}: Slurm's controller may be down; see \
                 `scontrol ping`"
            ),
            CommandError::Failed { program, words } => {
                write!(f, "`{program}` failed: {words}")?;
                remedy(words).map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
            }
        }
    }
}

impl From<CommandError> for BackendError {
    fn from(error: CommandError) -> BackendError {
        let message = error.to_string();
        match error {
            CommandError::TimedOut { .. } => BackendError::TimedOut(message),
            CommandError::Failed { .. } if error.is_passing() => BackendError::OutOfReach(message),
            CommandError::Failed { .. } => BackendError::Refused(message),
            CommandError::NotRun { error, .. } if shortage::is_shortage(&error) => {
                BackendError::Shortage(message)
            }
            CommandError::NotRun { .. } => BackendError::NotAvailable(message),
        }
    }
}

/// Returns the messages of a command as one line, without its own name.
fn words_of(text: &str, program: &str) -> String {
    let own = format!("{program}: ");
    let lines = text.lines().map(|line| {
        let line = line.strip_prefix(&own).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line).trim()
    });
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn is_out_of_reach(words: &str) -> bool {
    ["unable to contact", "timed out", "connection refused", "communication", "try again"]
        .iter()
        .any(|sign| words.contains(sign))
}

/// Returns the remedy for a failure. The words differ between versions of Slurm, so this looks for
/// parts of them.
fn remedy(words: &str) -> Option<&'static str> {
    let words = words.to_lowercase();
    let has = |part: &str| words.contains(part);
    Some(if is_out_of_reach(&words) {
        "does slurmctld answer? See `scontrol ping`"
    } else if has("account") {
        "name an account that may submit to this partition (`slurm.account`, or `fiber run \
         --account`); `sacctmgr show associations user=$USER` lists yours"
    } else if has("qos") {
        "name a quality of service that you may use (`slurm.qos`, or `fiber run --qos`); `sacctmgr \
         show qos` lists them"
    } else if has("partition") {
        "name a partition that exists (`slurm.partition`, or `fiber run --partition`); `sinfo -o \
         '%P %l'` lists them"
    } else if has("node configuration") || has("node count") || has("memory") || has("processors") {
        "ask for no more than the nodes have; `sinfo -o '%P %D %c %m %G'` lists their number, cores, \
         memory and GPUs"
    } else if has("time limit") {
        "ask for less time (`slurm.time`, or `fiber run --time`); `sinfo -o '%P %l'` lists the \
         limits of the partitions"
    } else if has("configuration source") || has("slurm.conf") {
        "this host has no configuration of Slurm: set `SLURM_CONF`, or run this on a login node"
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_remedy() {
        let failure = |words: &str| CommandError::failed("sbatch", words, "").to_string();
        let partition = failure(
            "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission \
             failed: Invalid partition name specified",
        );
        assert!(
            partition.starts_with("`sbatch` failed: invalid partition specified: nope; Batch")
                && partition.contains("`slurm.partition`")
                && partition.contains("`fiber run --partition`"),
            "{partition}"
        );
        let account = failure("Invalid account or account/partition combination specified");
        assert!(account.contains("slurm.account"), "{account}");
        let nodes = failure("Requested node configuration is not available");
        assert!(nodes.contains("no more than the nodes have"), "{nodes}");
        let limit = failure("Requested time limit is invalid (missing or exceeds some limit)");
        assert!(limit.contains("slurm.time"), "{limit}");
    }

    #[test]
    fn a_job_that_has_ended_needs_no_cancelling() {
        let failure = |words: &str| CommandError::failed("scancel", words, "");
        let ended = "scancel: error: Kill job error on job id 7: Invalid job id specified";
        assert!(failure(ended).is_about_an_ended_job());
        assert!(!failure("scancel: error: Access/permission denied").is_about_an_ended_job());
    }
}
