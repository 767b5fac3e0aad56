//! Failures of Slurm's commands, with remedies.

use crate::batch::{CommandError, Hints};

/// The words of messages about Slurm's commands.
pub(crate) static HINTS: Hints = Hints {
    missing: "in PATH: run this on a login node of a Slurm cluster, or load its module (`module \
              load slurm`)",
    silent: "Slurm's controller may be down; see `scontrol ping`",
    trim: |line| line.strip_prefix("error: ").unwrap_or(line),
    is_passing: |words| is_out_of_reach(&words.to_lowercase()),
    remedy,
};

/// Returns whether `scancel` has failed because the job or step has ended.
pub(super) fn is_about_an_ended_job(error: &CommandError) -> bool {
    error.says(&["already completing or completed", "Invalid job id"])
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
        let failure = |words: &str| CommandError::failed("sbatch", &HINTS, words, "").to_string();
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
        let failure = |words: &str| CommandError::failed("scancel", &HINTS, words, "");
        let ended = "scancel: error: Kill job error on job id 7: Invalid job id specified";
        assert!(is_about_an_ended_job(&failure(ended)));
        assert!(!is_about_an_ended_job(&failure("scancel: error: Access/permission denied")));
    }
}
