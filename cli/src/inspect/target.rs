//! The session or process that a name on the command line stands for.

use anyhow::bail;
use fiber_core::ProcessId;
use fiber_core::stats::{ProcessRole, ProcessStats, SessionStats};

use super::sessions::{Head, Observed};
use crate::names::closest;

/// A process of a session whose head can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) head: Head,
    /// The number of the session.
    pub(crate) session: String,
    pub(crate) process: ProcessId,
    /// Its full name, for messages and file names.
    pub(crate) name: String,
    pub(crate) role: ProcessRole,
}

/// A name by which users may call a process.
struct Alias {
    text: String,
    target: Target,
    /// The name for messages, which no other process has.
    shown: String,
}

/// Returns the process that `name` means. A session means its head.
///
/// A session is called `pid 4711`, `4711`, by its program or by its number; a process by its full
/// name, by `SESSION/NAME`, by its pid, or by its container or pod. The beginning is enough if it
/// is the beginning of one only; sessions take precedence.
pub(crate) fn find(observed: &[Observed], name: &str) -> anyhow::Result<Target> {
    let (mut heads, mut others) = (Vec::new(), Vec::new());
    for session in observed {
        let Ok(stats) = &session.stats else { continue };
        for process in &stats.report.processes {
            let aliases = aliases(&session.head, stats, process);
            if process.role == ProcessRole::Head { &mut heads } else { &mut others }
                .extend(aliases);
        }
    }
    let exact = |alias: &Alias| alias.text == name;
    let begins = |alias: &Alias| !name.is_empty() && alias.text.starts_with(name);
    for (aliases, fits) in [
        (&heads, &exact as &dyn Fn(&Alias) -> bool),
        (&others, &exact),
        (&heads, &begins),
        (&others, &begins),
    ] {
        let mut found: Vec<&Alias> = aliases.iter().filter(|alias| fits(alias)).collect();
        found.dedup_by(|a, b| a.target == b.target);
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one.target.clone()),
            [first, second, ..] => bail!(
                "`{name}` may be any of {}, among them {} and {}: type more of it, or the pid",
                found.len(),
                first.shown,
                second.shown
            ),
        }
    }
    for session in observed {
        if let Err(problem) = &session.stats
            && (session.head.name() == name || session.head.name() == format!("pid {name}"))
        {
            bail!("{problem}");
        }
    }
    let silent: Vec<String> = observed
        .iter()
        .filter_map(|session| session.stats.as_ref().err())
        .map(|problem| format!("; {problem}"))
        .collect();
    let silent = silent.concat();
    let known = heads.iter().chain(&others).map(|alias| alias.text.as_str());
    match closest(name, known) {
        Some(other) => bail!("there is no session or process `{name}`: did you mean `{other}`?"),
        None => bail!("there is no session or process `{name}`: `fiber ps` lists all{silent}"),
    }
}

fn aliases(head: &Head, stats: &SessionStats, process: &ProcessStats) -> Vec<Alias> {
    let is_head = process.role == ProcessRole::Head;
    let pid = process.pid.map(|pid| pid.to_string());
    let mut sessions = vec![head.name(), stats.program.clone(), stats.session.clone()];
    if let Head::Local(head) = head {
        sessions.push(head.pid.to_string());
    }
    let target = Target {
        head: head.clone(),
        session: stats.session.clone(),
        process: process.id,
        name: process.name.clone(),
        role: process.role,
    };
    let shown = match (is_head, head) {
        (true, head) => format!("{} ({})", head.name(), stats.program),
        (false, Head::Local(head)) => format!("{}/{}", head.pid, process.name),
        (false, Head::Engine(name)) => format!("{name}/{}", process.name),
    };
    let names = if is_head {
        sessions
    } else {
        let mut names = vec![process.name.clone()];
        names.extend(sessions.iter().map(|session| format!("{session}/{}", process.name)));
        match (&pid, head, place_name(&process.place)) {
            (_, _, Some(place)) => names.push(place.to_string()),
            (Some(pid), Head::Local(_), None) if is_beside_head(stats, process) => {
                names.extend([pid.clone(), format!("pid {pid}")]);
            }
            _ => names.push(process.place.clone()),
        }
        names
    };
    let alias = |text| Alias { text, target: target.clone(), shown: shown.clone() };
    names.into_iter().map(alias).collect()
}

/// Returns the name of the container or pod in which a process runs, from `container fiber-…`.
pub(crate) fn place_name(place: &str) -> Option<&str> {
    let (kind, name) = place.split_once(' ')?;
    (kind != "pid").then_some(name)
}

/// Returns the name of the host in which a process runs, from `pid 7 in pool-1/host-1`.
pub(crate) fn host_name(place: &str) -> Option<&str> {
    place.split_once(" in ").map(|(_, host)| host)
}

/// Returns whether a process runs on the machine of its head, in no container or pod, so that its
/// pid is one of that machine.
pub(crate) fn is_beside_head(stats: &SessionStats, process: &ProcessStats) -> bool {
    let report = &stats.report;
    let host = |process: &ProcessStats| {
        let name = host_name(&process.place)?;
        report.processes.iter().find(|host| {
            host.role == ProcessRole::Host
                && host.parent == process.parent
                && host.name.ends_with(name)
        })
    };
    let is_job_of_engine = |process: &ProcessStats| {
        place_name(&process.place).is_some()
            || host(process).is_some_and(|host| place_name(&host.place).is_some())
    };
    let above =
        std::iter::successors(Some(process), |process| report.process(process.parent?)).take(64);
    report.processes.first().is_some_and(|head| head.host == process.host)
        && !above.into_iter().any(is_job_of_engine)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inspect::InspectError;
    use crate::inspect::local::LocalHead;
    use crate::inspect::testing::stats;

    fn session(pid: u32, program: &str) -> Observed {
        let mut stats = stats(program, 11);
        stats.session = format!("{pid:016x}");
        stats.report.processes[0].pid = Some(pid);
        for process in &mut stats.report.processes[1..] {
            process.pid = process.pid.map(|number| number - 4000 + pid);
            process.place = format!("pid {}", process.pid.unwrap());
        }
        Observed { head: Head::Local(LocalHead::of(pid)), stats: Ok(Arc::new(stats)) }
    }

    fn named(observed: &[Observed], name: &str) -> String {
        match find(observed, name) {
            Ok(target) => format!("{} {}", target.head.name(), target.name),
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
        let silent = Observed { head: Head::Local(LocalHead::of(300)), stats: Err(problem) };
        let observed = [session(100, "simulate"), silent];
        assert_eq!(named(&observed, "300"), "pid 300 does not answer");
        assert!(named(&observed, "zzz").contains("pid 300 does not answer"));
    }
}
