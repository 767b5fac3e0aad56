//! Sessions whose processes only their heads know, as these describe them.

use std::sync::Arc;

use fiber_backends::cluster::{ProcessState, SessionHead, SessionProcess, Usage};
use fiber_core::stats::{self, JobPlace, ProcessRole, ProcessStats, SessionStats};

use super::Session;
use crate::inspect::sessions::Observed;
use crate::inspect::target::{is_beside_head, machine};
use crate::inspect::{InspectError, continuing, outside};

/// Returns the sessions whose heads have answered, oldest first.
pub(super) fn sessions(observed: &[Observed]) -> Vec<Session> {
    let answered = observed
        .iter()
        .filter_map(|session| self::session(&session.head, session.stats.as_ref().ok()?));
    let mut sessions: Vec<Session> = answered.collect();
    sessions.sort_by_key(|session| session.head.started_at);
    sessions
}

/// Returns the sessions of this host whose heads have not answered.
pub(super) fn silent(observed: &[Observed]) -> impl Iterator<Item = Session> {
    observed.iter().filter_map(|session| {
        let (head, pid) = (&session.head, session.head.pid?);
        let state = match session.stats.as_ref().err()? {
            InspectError::Stopped(_) => ProcessState::Paused(continuing(pid)),
            problem => ProcessState::Silent(problem.to_string()),
        };
        let own = SessionProcess {
            program: outside::program(pid),
            has_output: false,
            state,
            ..SessionProcess::new(&head.name, JobPlace::Process { pid })
        };
        Some(Session { head: own, workers: Vec::new(), observed: None })
    })
}

fn session(head: &SessionHead, stats: &Arc<SessionStats>) -> Option<Session> {
    // The head describes itself first.
    let (first, below) = stats.report.processes.split_first()?;
    let worker = |process| (depth(stats, process), listed(stats, &head.name, process));
    let mut own = listed(stats, "", first);
    own.program = Some(std::mem::replace(&mut own.name, head.name.clone()));
    (own.job, own.parent) = (head.name.clone(), None);
    let observed = Some((head.clone(), Arc::clone(stats)));
    Some(Session { head: own, workers: below.iter().map(worker).collect(), observed })
}

/// Returns the number of processes between a process and its head.
fn depth(stats: &SessionStats, process: &ProcessStats) -> usize {
    let parent = |process: &ProcessStats| stats.report.process(process.parent?);
    std::iter::successors(parent(process), |above| parent(above)).take(64).count().max(1) - 1
}

fn listed(stats: &SessionStats, head: &str, process: &ProcessStats) -> SessionProcess {
    let parent = process.parent.and_then(|parent| stats.report.process(parent));
    let place = process.job.clone().unwrap_or(JobPlace::Other { words: process.place.clone() });
    SessionProcess {
        job: match process.pid.filter(|_| is_beside_head(stats, process)) {
            Some(pid) => JobPlace::Process { pid }.to_string(),
            None => process.place.clone(),
        },
        parent: parent.map(|parent| match parent.role {
            ProcessRole::Head => head.to_string(),
            _ => parent.name.clone(),
        }),
        machine: machine(stats, process).map(String::from),
        has_output: false,
        state: match &process.state {
            stats::ProcessState::Starting => ProcessState::Starting(None),
            stats::ProcessState::Waiting(reason) => ProcessState::Starting(Some(reason.clone())),
            _ => ProcessState::Running,
        },
        restarts: process.restarts,
        started_at: Some(process.since),
        usage: process.usage.as_ref().map(|usage| Usage {
            cpu: usage.cpu,
            memory: usage.memory,
            pss: usage.pss,
        }),
        ..SessionProcess::new(&process.name, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::{head_here, stats};

    #[test]
    fn a_session_is_listed_by_names_with_places_and_what_it_uses() {
        let mut stats = stats("simulate", 2);
        let worker = stats.report.processes[1].id;
        let below = &mut stats.report.processes[2];
        below.parent = Some(worker);
        below.set_job(JobPlace::Container { name: "fiber-1".into() });
        let session = session(&head_here(4001), &Arc::new(stats)).unwrap();
        let head = &session.head;
        assert_eq!((head.name.as_str(), head.program.as_deref()), ("pid 4001", Some("simulate")));
        let (place, machine) = (head.place.to_string(), head.machine.as_deref());
        assert_eq!((place.as_str(), machine), ("pid 4001", Some("host")));
        let usage = head.usage.unwrap();
        assert_eq!((usage.memory, usage.pss), (31 << 20, Some(11 << 20)));
        assert_eq!(head.parent, None);
        let shape: Vec<_> = session
            .workers
            .iter()
            .map(|(depth, process)| {
                let (parent, machine) = (process.parent.as_deref(), process.machine.as_deref());
                let place = process.place.to_string();
                (*depth, process.name.as_str(), place, parent.unwrap(), machine)
            })
            .collect();
        assert_eq!(
            shape,
            [
                (0, "squares/worker-1", "pid 4002".into(), "pid 4001", Some("host")),
                (1, "squares/worker-2", "container fiber-1".into(), "squares/worker-1", None),
            ]
        );
        assert_eq!(session.workers[1].1.restarts, 1);
    }
}
