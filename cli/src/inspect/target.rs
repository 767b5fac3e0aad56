//! The session or process that a name on the command line stands for.

use anyhow::bail;
use fiber_backends::cluster::SessionHead;
use fiber_core::ProcessId;
use fiber_core::stats::{JobPlace, ProcessRole, ProcessStats, SessionStats};

use super::outside::{self, Unreachable};
use super::sessions::Observed;
use crate::names::{self, Entry};

/// A process of a session whose head can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) head: SessionHead,
    /// The number of the session.
    pub(crate) session: String,
    pub(crate) process: ProcessId,
    /// Its full name, for messages and file names.
    pub(crate) name: String,
}

/// What a name means.
#[derive(Clone, Debug)]
pub(crate) enum Located {
    Known(Target),
    /// Its head does not answer.
    Unreachable(Unreachable),
}

impl Located {
    /// Returns the process.
    ///
    /// # Errors
    /// Why its head does not answer.
    pub(crate) fn known(self) -> anyhow::Result<Target> {
        match self {
            Located::Known(target) => Ok(target),
            Located::Unreachable(process) => bail!("{}", process.problem),
        }
    }
}

/// Returns what `name` means, also in sessions whose heads do not answer. A session means its head.
/// See [`names`].
///
/// A session is called `pid 4711`, `4711`, by its program or by its number.
pub(super) fn locate(observed: &[Observed], name: &str) -> anyhow::Result<Located> {
    let mut entries = Vec::new();
    for session in observed {
        let Ok(stats) = &session.stats else { continue };
        let processes = stats.report.processes.iter();
        let known = processes.map(|process| entry(&session.head, stats, process));
        entries.extend(known.map(|entry| entry.map(Located::Known)));
    }
    entries.extend(unreachable(observed).map(|entry| entry.map(Located::Unreachable)));
    names::choose(&entries, name, &silent(observed)).cloned()
}

/// Returns the names in sessions whose heads do not answer.
pub(crate) fn unreachable(observed: &[Observed]) -> impl Iterator<Item = Entry<Unreachable>> {
    // No head has an empty name.
    let named = observed.iter().filter(|session| !session.head.name.is_empty());
    let entries =
        |session: &Observed| Some(outside::entries(&session.head, session.stats.as_ref().err()?));
    named.filter_map(entries).flatten()
}

/// Returns a note about the heads that did not answer, for messages about unknown names.
pub(crate) fn silent(observed: &[Observed]) -> String {
    let problems = observed.iter().filter_map(|session| session.stats.as_ref().err());
    problems.map(|problem| format!("; {problem}")).collect()
}

/// Returns the names of a process.
pub(crate) fn entry(
    head: &SessionHead,
    stats: &SessionStats,
    process: &ProcessStats,
) -> Entry<Target> {
    let mut sessions = vec![head.name.clone(), stats.program.clone(), stats.session.clone()];
    if let Some(pid) = head.pid {
        // Shells take it without quotes.
        sessions.insert(0, pid.to_string());
    }
    let target = Target {
        head: head.clone(),
        session: stats.session.clone(),
        process: process.id,
        name: process.name.clone(),
    };
    if process.role == ProcessRole::Head {
        let shown = format!("{} ({})", head.name, stats.program);
        return Entry::session(&sessions, shown, target);
    }
    let job = match (process.pid, head.pid, process.job.as_ref().and_then(JobPlace::name)) {
        (_, _, Some(name)) => vec![name.to_string()],
        (Some(pid), Some(_), None) if is_beside_head(stats, process) => {
            vec![pid.to_string(), format!("pid {pid}")]
        }
        _ => vec![process.place.clone()],
    };
    Entry::process(&sessions, &process.name, job, target)
}

/// Returns the machine on which a process runs; `None` if only its engine knows that.
pub(crate) fn machine<'a>(stats: &SessionStats, process: &'a ProcessStats) -> Option<&'a str> {
    let is_known = !process.host.is_empty() && !is_in_container(stats, process);
    is_known.then_some(process.host.as_str())
}

/// Returns whether a process runs on the machine of its head, in no container or pod, so that its
/// pid is one of that machine.
pub(crate) fn is_beside_head(stats: &SessionStats, process: &ProcessStats) -> bool {
    stats.report.processes.first().is_some_and(|head| head.host == process.host)
        && !is_below(stats, process, |place| !place.is_process())
}

/// Returns whether a process or one above it, up to the head, runs in a container or pod.
fn is_in_container(stats: &SessionStats, process: &ProcessStats) -> bool {
    is_below(stats, process, JobPlace::is_container)
}

/// Returns whether a process, its host or one above it has a place of this kind.
fn is_below(
    stats: &SessionStats,
    process: &ProcessStats,
    fits: impl Fn(&JobPlace) -> bool,
) -> bool {
    let report = &stats.report;
    let host = |process: &ProcessStats| {
        let name = process.job.as_ref()?.host()?;
        report.processes.iter().find(|host| {
            host.role == ProcessRole::Host
                && host.parent == process.parent
                && host.name.ends_with(name)
        })
    };
    let above =
        std::iter::successors(Some(process), |process| report.process(process.parent?)).take(64);
    let fits = |process: &ProcessStats| process.job.as_ref().is_some_and(&fits);
    above.into_iter().any(|process| fits(process) || host(process).is_some_and(fits))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inspect::InspectError;
    use crate::inspect::testing::{head_here, stats};

    fn session(pid: u32, program: &str) -> Observed {
        let mut stats = stats(program, 11);
        stats.session = format!("{pid:016x}");
        stats.report.processes[0].pid = Some(pid);
        for process in &mut stats.report.processes[1..] {
            process.pid = process.pid.map(|number| number - 4000 + pid);
            process.set_job(JobPlace::Process { pid: process.pid.unwrap() });
        }
        Observed { head: head_here(pid), stats: Ok(Arc::new(stats)) }
    }

    fn named(observed: &[Observed], name: &str) -> String {
        match locate(observed, name).and_then(Located::known) {
            Ok(target) => format!("{} {}", target.head.name, target.name),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn a_session_is_called_by_pid_program_or_number() {
        let observed = [session(100, "simulate"), session(200, "learn")];
        for name in ["100", "pid 100", "simulate", "sim", "0000000000000064"] {
            assert_eq!(named(&observed, name), "pid 100 simulate", "{name}");
        }
        assert_eq!(named(&observed, "learn"), "pid 200 learn");
    }

    #[test]
    fn a_process_is_called_by_its_name_or_pid() {
        let observed = [session(100, "simulate")];
        for name in ["squares/worker-2", "100/squares/worker-2", "simulate/squares/worker-2", "103"]
        {
            assert_eq!(named(&observed, name), "pid 100 squares/worker-2", "{name}");
        }
        // An exact name takes precedence over names that begin with it.
        assert_eq!(named(&observed, "squares/worker-1"), "pid 100 squares/worker-1");
    }

    #[test]
    fn a_name_of_two_is_an_error_that_names_both() {
        let observed = [session(100, "simulate"), session(200, "simulate")];
        let problem = named(&observed, "simulate");
        assert!(problem.contains("pid 100 (simulate) and pid 200 (simulate)"), "{problem}");
        let problem = named(&observed, "squares/worker-2");
        assert!(problem.contains("100/squares/worker-2 and 200/squares/worker-2"), "{problem}");
        assert_eq!(named(&observed, "200/squares/worker-2"), "pid 200 squares/worker-2");
        let problem = named(&observed, "squares/worker-1x");
        assert!(problem.contains("did you mean `squares/worker-1`?"), "{problem}");
        assert!(named(&observed, "").contains("there is no session"), "{problem}");
    }

    #[test]
    fn a_head_that_does_not_answer_is_named() {
        let problem = InspectError::Silent("pid 300 does not answer".into());
        let silent = Observed { head: head_here(300), stats: Err(problem) };
        let observed = [session(100, "simulate"), silent];
        assert_eq!(named(&observed, "300"), "pid 300 does not answer");
        assert!(named(&observed, "zzz").contains("pid 300 does not answer"));
    }

    #[test]
    fn a_pid_in_a_container_is_none_of_this_machine() {
        let mut stats = stats("simulate", 3);
        let [_, host, hosted, nested] = &mut stats.report.processes[..] else { panic!() };
        (host.role, host.name) = (ProcessRole::Host, "squares/host-1".into());
        host.set_job(JobPlace::Container { name: "fiber-1".into() });
        let place = Box::new(JobPlace::Process { pid: 1 });
        hosted.pid = Some(1);
        hosted.set_job(JobPlace::Hosted { place, host: "squares/host-1".into() });
        (nested.parent, nested.pid) = (Some(hosted.id), Some(2));
        nested.set_job(JobPlace::Process { pid: 2 });
        let here = |stats: &SessionStats| {
            let processes = stats.report.processes.iter();
            processes.map(|process| is_beside_head(stats, process)).collect::<Vec<_>>()
        };
        assert_eq!(here(&stats), [true, false, false, false]);
        // With the local backend, a host and its processes are here.
        stats.report.processes[1].set_job(JobPlace::Process { pid: 4002 });
        assert_eq!(here(&stats), [true; 4]);
        stats.report.processes[2].host = "elsewhere".into();
        assert!(!here(&stats)[2]);
    }
}
