//! The states and exit statuses of sessions, from those of their jobs.

use super::super::commands;
use super::super::jobs::Job;
use super::super::states::{self, Ending, ScriptExit, State};
use crate::batch::{Record, Records};
use crate::cluster::session::{ExitStatus, ProcessState};

/// Returns the state of the head of a job.
pub(super) fn process_state(job: &Job) -> ProcessState {
    match job.state() {
        State::Pending => {
            let is_known = !matches!(job.reason.as_str(), "" | "None" | "N/A");
            ProcessState::Starting(is_known.then(|| states::explained(&job.reason)))
        }
        State::Running => ProcessState::Running,
        State::Suspended => ProcessState::Paused(format!("scontrol resume {}", job.id)),
        State::Ended(ending) => ProcessState::Ended(ended(ending, job.exit)),
    }
}

/// Returns the exit status of a job, if it has ended.
pub(super) fn exit_status(state: State, exit: ScriptExit) -> Option<ExitStatus> {
    match state {
        State::Ended(ending) => Some(ended(ending, exit)),
        _ => None,
    }
}

fn ended(ending: Ending, exit: ScriptExit) -> ExitStatus {
    if ending == Ending::Failed && exit.has_no_output() {
        let remedy = "set XDG_STATE_HOME to a directory that all nodes share, or name one by \
                      `--slurm=--output=FILE`";
        return ExitStatus { code: 1, reason: Some(format!("{}: {remedy}", states::NO_OUTPUT)) };
    }
    let reason = match ending {
        Ending::Completed | Ending::Failed | Ending::Revoked => None,
        Ending::Cancelled => Some("cancelled"),
        Ending::TimeLimit => Some("its time limit"),
        Ending::NodeFailed => Some("its node failed"),
        Ending::Preempted => Some("preempted"),
        Ending::BootFailed => Some("its node did not boot"),
        Ending::Deadline => Some("its deadline"),
        Ending::OutOfMemory => Some("out of memory"),
        Ending::LaunchFailed => Some("it could not be launched"),
    };
    let code = match (exit, ending) {
        (ScriptExit { signal: signal @ 1.., .. }, _) => 128 + signal,
        (ScriptExit { code: 0, .. }, _) => match ending {
            Ending::Completed => 0,
            // Slurm has ended it, perhaps before its start.
            Ending::OutOfMemory => 128 + 9,
            Ending::Cancelled | Ending::TimeLimit | Ending::Deadline | Ending::Preempted => {
                128 + 15
            }
            _ => 1,
        },
        (ScriptExit { code, .. }, _) => code,
    };
    ExitStatus { code, reason: reason.map(String::from) }
}

/// Returns how a job has ended that `squeue` does not list any more: from the site's accounts,
/// which know a reason, or by the exit code that the batch script has written.
pub(super) async fn remembered(records: &Records, record: &Record) -> Option<ExitStatus> {
    accounted(&record.id).await.or_else(|| records.ended(record))
}

/// Returns how a job has ended, if the site keeps accounts.
async fn accounted(id: &str) -> Option<ExitStatus> {
    let arguments =
        ["--noheader", "--parsable2", "--allocations", "--jobs", id, "--format=State,ExitCode"];
    let told = commands::run("sacct", &arguments).await.ok()?;
    // The last line is of the last start.
    let (state, exit) = told.lines().last()?.split_once('|')?;
    let word = state.split(' ').next()?;
    exit_status(State::named(word), ScriptExit::parse(exit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        let ended = |word: &str, exit: &str| {
            let status = exit_status(State::named(word), ScriptExit::parse(exit));
            let ExitStatus { code, reason } = status.expect("it has ended");
            (code, reason)
        };
        assert_eq!(ended("COMPLETED", "0"), (0, None));
        assert_eq!(ended("FAILED", "768"), (3, None));
        assert_eq!(ended("FAILED", "3:0"), (3, None));
        assert_eq!(ended("FAILED", "9"), (137, None));
        assert_eq!(ended("FAILED", "0:6"), (134, None));
        let (code, reason) = ended("FAILED", "0:53");
        assert!(code == 1 && reason.is_some_and(|why| why.contains("could not open the file")));
        assert_eq!(ended("CANCELLED", "0"), (143, Some("cancelled".into())));
        assert_eq!(ended("TIMEOUT", "0:15"), (143, Some("its time limit".into())));
        assert_eq!(ended("OUT_OF_MEMORY", "0:125").1, Some("out of memory".into()));
        assert_eq!(ended("NODE_FAIL", "0"), (1, Some("its node failed".into())));
    }

    #[test]
    fn a_suspended_job_says_what_lets_it_go_on() {
        let suspended = process_state(&Job::sample("17", "SUSPENDED"));
        assert_eq!(suspended, ProcessState::Paused("scontrol resume 17".into()));
    }

    #[test]
    fn a_job_that_waits_says_why() {
        let waits = |reason: &str| {
            process_state(&Job { reason: reason.into(), ..Job::sample("1", "PENDING") })
        };
        assert_eq!(waits("None"), ProcessState::Starting(None));
        assert_eq!(waits("Resources"), ProcessState::Starting(Some("Resources".into())));
    }
}
