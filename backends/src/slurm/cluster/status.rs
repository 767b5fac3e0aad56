//! The states of jobs and their exit statuses, from Slurm's words.

use fiber_core::Meta;

use super::commands;
use super::records::Record;
use crate::cluster::session::{ExitStatus, Location, ProcessState, SessionProcess};

/// Returns the state of a job. A word of another version of Slurm counts as running: only words
/// that are certain end a session.
pub(super) fn of(word: &str, reason: &str, exit: &str) -> ProcessState {
    match word {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED"
        | "SPECIAL_EXIT" | "POWER_UP_NODE" => {
            let reason = (!matches!(reason, "" | "None" | "N/A")).then(|| explained(reason));
            ProcessState::Starting(reason)
        }
        "SUSPENDED" | "STOPPED" => ProcessState::Paused,
        "COMPLETED" | "FAILED" | "CANCELLED" | "TIMEOUT" | "NODE_FAIL" | "PREEMPTED"
        | "BOOT_FAIL" | "DEADLINE" | "OUT_OF_MEMORY" | "REVOKED" | "LAUNCH_FAILED" => {
            ProcessState::Ended(exit_status(word, exit))
        }
        _ => ProcessState::Running,
    }
}

/// Returns the exit status of a job that has ended.
pub(super) fn exit_status(word: &str, exit: &str) -> ExitStatus {
    let reason = match word {
        "CANCELLED" => Some("cancelled"),
        "TIMEOUT" => Some("its time limit"),
        "NODE_FAIL" => Some("its node failed"),
        "PREEMPTED" => Some("preempted"),
        "BOOT_FAIL" => Some("its node did not boot"),
        "DEADLINE" => Some("its deadline"),
        "OUT_OF_MEMORY" => Some("out of memory"),
        "LAUNCH_FAILED" => Some("it could not be launched"),
        _ => None,
    };
    let code = match (code(exit), word) {
        (0, "COMPLETED") => 0,
        // Slurm has ended it, perhaps before its start.
        (0, "OUT_OF_MEMORY") => 128 + 9,
        (0, "CANCELLED" | "TIMEOUT" | "DEADLINE" | "PREEMPTED") => 128 + 15,
        (0, _) => 1,
        (code, _) => code,
    };
    ExitStatus { code, reason: reason.map(String::from) }
}

/// Returns the exit code from a status as `wait` has it, or from `CODE:SIGNAL`.
fn code(exit: &str) -> i32 {
    let number = |text: &str| text.trim().parse::<i32>().unwrap_or(0);
    let (code, signal) = match exit.split_once(':') {
        Some((code, signal)) => (number(code), number(signal)),
        None => (number(exit) >> 8 & 0xff, number(exit) & 0x7f),
    };
    if signal > 0 { 128 + signal } else { code }
}

/// Returns the reason why a job waits, with what it means if the word alone does not say it.
pub(super) fn explained(reason: &str) -> String {
    let meaning = match reason {
        "BeginTime" => "it may start later",
        "PartitionConfig" | "PartitionNodeLimit" => {
            "its partition does not have or allow that many nodes or cores"
        }
        "PartitionTimeLimit" => "its partition does not allow a time that long",
        "PartitionDown" | "PartitionInactive" => "its partition starts no jobs",
        "AccountNotAllowed" => "its account may not use the partition",
        "QOSNotAllowed" | "InvalidQOS" => "its account may not use the quality of service",
        "InvalidAccount" => "there is no such account",
        "ReqNodeNotAvail" => "nodes that it needs are down or reserved",
        _ => return reason.to_string(),
    };
    format!("{reason}: {meaning}")
}

/// Returns whether a job with this reason never starts as it is.
pub(super) fn is_hopeless(reason: &str) -> bool {
    let words = [
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "AccountNotAllowed",
        "QOSNotAllowed",
        "InvalidQOS",
        "InvalidAccount",
        "BadConstraints",
    ];
    // Some reasons are sentences.
    let sentence = reason.to_lowercase();
    let signs = ["can't use this partition", "not permitted", "not allowed"];
    words.contains(&reason) || signs.iter().any(|sign| sentence.contains(sign))
}

/// Returns how a job has ended that `squeue` does not list any more, if the site keeps accounts.
pub(super) async fn accounted(id: &str) -> Option<ExitStatus> {
    let arguments =
        ["--noheader", "--parsable2", "--allocations", "--jobs", id, "--format=State,ExitCode"];
    let told = commands::sacct(&arguments).await.ok()?;
    // The last line is of the last start.
    let (state, exit) = told.lines().last()?.split_once('|')?;
    let word = state.split(' ').next()?;
    match of(word, "", exit) {
        ProcessState::Ended(ended) => Some(ended),
        _ => None,
    }
}

/// Returns the head of a session whose job `squeue` does not list any more.
pub(super) async fn forgotten(record: &Record) -> SessionProcess {
    let state = accounted(&record.id).await.map_or(ProcessState::Gone, ProcessState::Ended);
    SessionProcess {
        name: record.name.clone(),
        role: format!("job {}", record.id),
        parent: None,
        location: Location::Cluster,
        state,
        restarts: 0,
        meta: Meta::new(),
        started_at: record.written,
        usage: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(word: &str, exit: &str) -> (i32, Option<String>) {
        let ExitStatus { code, reason } = exit_status(word, exit);
        (code, reason)
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(ended("COMPLETED", "0"), (0, None));
        assert_eq!(ended("FAILED", "768"), (3, None));
        assert_eq!(ended("FAILED", "3:0"), (3, None));
        assert_eq!(ended("FAILED", "9"), (137, None));
        assert_eq!(ended("FAILED", "0:6"), (134, None));
        assert_eq!(ended("CANCELLED", "0"), (143, Some("cancelled".into())));
        assert_eq!(ended("TIMEOUT", "0:15"), (143, Some("its time limit".into())));
        assert_eq!(ended("OUT_OF_MEMORY", "0:125").1, Some("out of memory".into()));
        assert_eq!(ended("NODE_FAIL", "0"), (1, Some("its node failed".into())));
    }

    #[test]
    fn sentences_that_refuse_are_recognised() {
        let sentence = "Job's account not known, so it can't use this partition (a allows b)";
        assert!(is_hopeless(sentence) && is_hopeless("PartitionConfig"));
        assert!(!is_hopeless("Resources") && !is_hopeless("None") && !is_hopeless("Priority"));
    }

    #[test]
    fn only_certain_words_end_a_session() {
        assert!(matches!(of("FAILED", "", "0"), ProcessState::Ended(_)));
        for word in ["RUNNING", "COMPLETING", "SIGNALING", "word of a later version"] {
            assert_eq!(of(word, "None", "0"), ProcessState::Running, "{word}");
        }
        assert_eq!(of("PENDING", "None", "0"), ProcessState::Starting(None));
        let waits = of("PENDING", "Resources", "0");
        assert_eq!(waits, ProcessState::Starting(Some("Resources".into())));
    }
}
