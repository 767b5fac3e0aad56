//! The states of Slurm's jobs, and the reasons for which they wait.

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has no nodes yet, or they boot.
    Pending,
    Running,
    Suspended,
    Ended(Ending),
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Completed,
    Failed,
    Cancelled,
    TimeLimit,
    Deadline,
    NodeFailed,
    BootFailed,
    LaunchFailed,
    Preempted,
    Revoked,
    OutOfMemory,
}

impl State {
    /// Returns the state of a name. A name of another version of Slurm counts as running: only
    /// names that are certain end a job.
    pub(super) fn named(name: &str) -> State {
        match name {
            "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED"
            | "SPECIAL_EXIT" | "POWER_UP_NODE" => State::Pending,
            "SUSPENDED" | "STOPPED" => State::Suspended,
            "COMPLETED" => State::Ended(Ending::Completed),
            "FAILED" => State::Ended(Ending::Failed),
            "CANCELLED" => State::Ended(Ending::Cancelled),
            "TIMEOUT" => State::Ended(Ending::TimeLimit),
            "DEADLINE" => State::Ended(Ending::Deadline),
            "NODE_FAIL" => State::Ended(Ending::NodeFailed),
            "BOOT_FAIL" => State::Ended(Ending::BootFailed),
            "LAUNCH_FAILED" => State::Ended(Ending::LaunchFailed),
            "PREEMPTED" => State::Ended(Ending::Preempted),
            "REVOKED" => State::Ended(Ending::Revoked),
            "OUT_OF_MEMORY" => State::Ended(Ending::OutOfMemory),
            _ => State::Running,
        }
    }
}

/// The exit of a job's script: its exit code, and the signal that ended it, or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScriptExit {
    pub(super) code: i32,
    pub(super) signal: i32,
}

impl ScriptExit {
    /// Returns whether the node could not open the file of the job's output. Slurm reports that as
    /// this signal, which it does not send.
    pub(super) fn has_no_output(self) -> bool {
        self.signal == 53
    }

    /// Parses `CODE:SIGNAL`, or a status as `wait` has it.
    pub(super) fn parse(text: &str) -> ScriptExit {
        let number = |text: &str| text.trim().parse::<i32>().unwrap_or(0);
        match text.split_once(':') {
            Some((code, signal)) => ScriptExit { code: number(code), signal: number(signal) },
            None => {
                let status = number(text);
                ScriptExit { code: status >> 8 & 0xff, signal: status & 0x7f }
            }
        }
    }
}

/// The reasons to wait that need words: whether the job never starts as it is, and what the reason
/// means if its name alone does not say it.
const REASONS: [(&str, bool, &str); 14] = [
    ("AccountNotAllowed", true, "its account may not use the partition"),
    ("BadConstraints", true, ""),
    ("BeginTime", false, "it may start later"),
    ("InvalidAccount", true, "there is no such account"),
    ("InvalidQOS", true, "its account may not use the quality of service"),
    ("JobHeldAdmin", true, "an administrator holds it"),
    ("JobHeldUser", false, "`scontrol release` lets it start"),
    ("PartitionConfig", true, NODES_OF_PARTITION),
    ("PartitionDown", false, "its partition starts no jobs"),
    ("PartitionInactive", false, "its partition starts no jobs"),
    ("PartitionNodeLimit", true, NODES_OF_PARTITION),
    ("PartitionTimeLimit", true, "its partition does not allow a time that long"),
    ("QOSNotAllowed", true, "its account may not use the quality of service"),
    ("ReqNodeNotAvail", false, "nodes that it needs are down or reserved"),
];
/// The problem of a node that could not open the file of the output.
pub(super) const NO_OUTPUT: &str = "its node could not open the file of its output";
const NODES_OF_PARTITION: &str = "its partition does not have or allow that many nodes or cores";
/// Parts of reasons that are sentences: the job never starts.
const REFUSALS: [&str; 4] =
    ["account not known", "can't use this partition", "not permitted", "not allowed"];

/// Returns whether a job that waits for this reason never starts as it is.
pub(super) fn is_hopeless(reason: &str) -> bool {
    let sentence = reason.to_lowercase();
    REASONS.iter().any(|(name, is_hopeless, _)| *is_hopeless && reason.contains(name))
        || REFUSALS.iter().any(|refusal| sentence.contains(refusal))
}

/// Returns the reason for which a job waits, with what it means if its name alone does not say it.
pub(super) fn explained(reason: &str) -> String {
    match REASONS.iter().find(|(name, _, meaning)| *name == reason && !meaning.is_empty()) {
        Some((_, _, meaning)) => format!("{reason}: {meaning}"),
        None => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_names_end_a_job() {
        for name in ["FAILED", "LAUNCH_FAILED", "REVOKED"] {
            assert!(matches!(State::named(name), State::Ended(_)), "{name}");
        }
        for name in ["RUNNING", "COMPLETING", "SIGNALING", "name of a later version"] {
            assert_eq!(State::named(name), State::Running, "{name}");
        }
    }

    #[test]
    fn both_forms_of_an_exit_are_parsed() {
        let exit = |text| {
            let ScriptExit { code, signal } = ScriptExit::parse(text);
            (code, signal)
        };
        assert_eq!((exit("3:0"), exit("768")), ((3, 0), (3, 0)));
        assert_eq!((exit("0:9"), exit("9")), ((0, 9), (0, 9)));
        assert_eq!((exit("0"), exit("")), ((0, 0), (0, 0)));
    }

    #[test]
    fn reasons_that_refuse_are_recognized() {
        let sentence = "Job's account not known, so it can't use this partition (a allows b)";
        for reason in [sentence, "PartitionConfig", "JobHeldAdmin", "User not permitted"] {
            assert!(is_hopeless(reason), "{reason}");
        }
        for reason in ["Resources", "None", "Priority", "JobHeldUser", "BeginTime"] {
            assert!(!is_hopeless(reason), "{reason}");
        }
        assert!(explained("JobHeldAdmin").contains("administrator"));
        assert_eq!(explained("Priority"), "Priority");
    }
}
