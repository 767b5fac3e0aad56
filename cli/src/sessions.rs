//! Sessions with their processes, as an engine lists them or their heads describe them.

mod observed;

use std::sync::Arc;

use anyhow::bail;
use fiber_backends::cluster::{Cluster, Location, ProcessState, SessionHead, SessionProcess};
use fiber_core::stats::{ProcessRole, SessionStats};

use crate::args::ClusterArgs;
use crate::inspect::InspectError;
use crate::inspect::sessions::{Observed, Sessions, numbers};
use crate::inspect::target::{self, Target, is_beside_head};
use crate::names::{self, Entry};

/// A program with the processes that it started.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) head: SessionProcess,
    /// Each worker, with the number of processes between it and the head.
    pub(crate) workers: Vec<(usize, SessionProcess)>,
    /// Its statistics, with which it was listed, where no engine lists its processes.
    observed: Option<(SessionHead, Arc<SessionStats>)>,
}

/// Returns all sessions, oldest first.
pub(crate) async fn all(cluster: &dyn Cluster) -> anyhow::Result<Vec<Session>> {
    match cluster.lists_children() {
        true => Ok(assemble(cluster.processes().await?)),
        false => Ok(observed::sessions(&Sessions::of_host().look().await?)),
    }
}

/// Returns the sessions of this host's programs, oldest first, then those that do not answer, and
/// the problems with these.
pub(crate) async fn on_host() -> anyhow::Result<(Vec<Session>, Vec<InspectError>)> {
    let observed = Sessions::of_host().look().await?;
    let problems = observed.iter().filter_map(|session| session.stats.as_ref().err().cloned());
    let mut sessions = observed::sessions(&observed);
    sessions.extend(observed::silent(&observed));
    Ok((sessions, problems.collect()))
}

/// Removes programs of this host that an engine lists, too, such as the head of a Slurm job on this
/// machine. The session is called by the engine's name.
pub(crate) async fn remove_twins(
    here: &mut Vec<Session>,
    listed: &[Session],
    engine: &dyn Cluster,
) {
    // A program with another backend may have the name of a session there.
    let may_be_listed = |session: &Session| {
        let stats = session.observed.as_ref().map(|(_, stats)| stats);
        stats.is_some_and(|stats| engine.includes(&stats.backend))
    };
    let names =
        |program: &Session| listed.iter().any(|session| session.head.name == program.head.name);
    here.retain(|program| !may_be_listed(program) || !names(program));
    if here.iter().any(may_be_listed) {
        let numbers = numbers(engine).await;
        let is_listed =
            |(_, stats): &(SessionHead, Arc<SessionStats>)| numbers.contains(&stats.session);
        here.retain(|session| !session.observed.as_ref().is_some_and(is_listed));
    }
}

pub(crate) fn assemble(mut processes: Vec<SessionProcess>) -> Vec<Session> {
    processes.sort_by(|a, b| (a.started_at, &a.name).cmp(&(b.started_at, &b.name)));
    let (heads, mut others): (Vec<_>, Vec<_>) =
        processes.into_iter().partition(|process| process.parent.is_none());
    let session = |head: SessionProcess| {
        let mut workers = Vec::new();
        take_children(&head, "", 0, &mut others, &mut workers);
        Session { head, workers, observed: None }
    };
    heads.into_iter().map(session).collect()
}

/// Takes the processes below `parent`. Their names become the paths from the head, and those of
/// their parents the names that these have then.
fn take_children(
    parent: &SessionProcess,
    path: &str,
    depth: usize,
    others: &mut Vec<SessionProcess>,
    taken: &mut Vec<(usize, SessionProcess)>,
) {
    let is_child =
        |process: &mut SessionProcess| process.parent.as_deref() == Some(parent.job.as_str());
    let children: Vec<SessionProcess> = others.extract_if(.., is_child).collect();
    for mut child in children {
        child.name = format!("{path}{}", child.name);
        child.parent = Some(parent.name.clone());
        taken.push((depth, child.clone()));
        take_children(&child, &format!("{}/", child.name), depth + 1, others, taken);
    }
}

/// The session or process that a name stands for.
#[derive(Debug)]
pub(crate) enum Named {
    Session(Session),
    /// A process in a job of its own, with the name of its session.
    Job(SessionProcess, String),
    /// A process that only its head knows: it shares a job with others.
    Inside(Target),
}

impl Named {
    /// Returns the session, for commands that are for whole sessions.
    ///
    /// # Errors
    /// It is a process of one: `why` says why that is refused.
    pub(crate) fn session(self, why: &str) -> anyhow::Result<Session> {
        let (name, session) = match self {
            Named::Session(session) => return Ok(session),
            Named::Job(process, session) => (process.name, session),
            Named::Inside(target) => (target.name, target.head.name),
        };
        bail!("{name} is a process of {session}: {why}")
    }
}

/// Returns the session or process of this name: see [`names`].
pub(crate) async fn find(
    args: &ClusterArgs,
    cluster: &dyn Cluster,
    name: &str,
) -> anyhow::Result<Named> {
    let sessions = all(cluster).await?;
    let entries = entries(&sessions);
    if let Some(meant) = names::choose_certain(&entries, name)? {
        return Ok(take(sessions, meant.clone()));
    }
    // Processes that share a job are known to their heads alone.
    let observed = Sessions::connect(args).await?.look().await?;
    let known = entries.into_iter().chain(inside(&sessions, &observed));
    let silent = target::unreachable(&observed);
    let silent = silent.map(|entry| entry.map(|process| Err(process.problem)));
    let entries: Vec<_> = known.map(|entry| entry.map(Ok)).chain(silent).collect();
    let meant = names::choose(&entries, name, &target::silent(&observed))?.clone()?;
    Ok(take(sessions, meant))
}

/// Returns the session of this name; or the session of the process of this name, with that process
/// and those below it alone.
pub(crate) fn named(mut sessions: Vec<Session>, name: &str) -> anyhow::Result<Session> {
    let entries = entries(&sessions);
    let (place, path) = match names::choose(&entries, name, "")? {
        Meant::Session(place) => return Ok(sessions.swap_remove(*place)),
        Meant::Job(place, index) => (*place, sessions[*place].workers[*index].1.name.clone()),
        Meant::Inside(target) => {
            let head = &target.head.name;
            let place = sessions.iter().position(|session| session.head.name == *head);
            let path = target.name.strip_prefix(&format!("{head}/")).unwrap_or(&target.name);
            (place.expect("the entry is of one of these sessions"), path.to_string())
        }
    };
    let mut session = sessions.swap_remove(place);
    let below = format!("{path}/");
    session.workers.retain(|(_, process)| process.name == path || process.name.starts_with(&below));
    Ok(session)
}

/// Where an entry's session or process is.
#[derive(Clone, Debug)]
enum Meant {
    Session(usize),
    Job(usize, usize),
    Inside(Target),
}

fn entries(sessions: &[Session]) -> Vec<Entry<Meant>> {
    let mut entries = Vec::new();
    for (place, session) in sessions.iter().enumerate() {
        if let Some((head, stats)) = &session.observed {
            entries.extend(observed_entries(place, head, stats));
            continue;
        }
        let name = &session.head.name;
        let mut names = vec![name.clone()];
        // A program of this host that does not answer.
        if let (ProcessState::Silent(_) | ProcessState::Paused(_), Some(pid)) =
            (&session.head.state, name.strip_prefix("pid "))
        {
            names.push(pid.into());
            names.extend(session.head.program.clone());
        }
        entries.push(Entry::session(&names, name.clone(), Meant::Session(place)));
        for (index, (_, process)) in session.workers.iter().enumerate() {
            let meant = Meant::Job(place, index);
            entries.push(Entry::process(&names, &process.name, vec![process.job.clone()], meant));
        }
    }
    entries
}

/// Returns the entries of a session that is known by its statistics.
fn observed_entries<'a>(
    place: usize,
    head: &'a SessionHead,
    stats: &'a SessionStats,
) -> impl Iterator<Item = Entry<Meant>> + 'a {
    stats.report.processes.iter().enumerate().map(move |(index, process)| {
        target::entry(head, stats, process).map(|target| match index {
            0 => Meant::Session(place),
            _ if process.pid.is_some() && is_beside_head(stats, process) => {
                Meant::Job(place, index - 1)
            }
            _ => Meant::Inside(target),
        })
    })
}

/// Returns the entries of processes that have no job of their own.
fn inside<'a>(
    sessions: &'a [Session],
    observed: &'a [Observed],
) -> impl Iterator<Item = Entry<Meant>> + 'a {
    let listed = |head: &str, name: &str| {
        let session = sessions.iter().find(|session| session.head.name == head);
        session.is_some_and(|session| session.workers.iter().any(|(_, job)| job.name == name))
    };
    let known =
        observed.iter().filter_map(|session| Some((&session.head, session.stats.as_ref().ok()?)));
    known.flat_map(move |(head, stats)| {
        let processes = stats.report.processes.iter();
        let hidden = processes.filter(move |process| {
            process.role != ProcessRole::Head && !listed(&head.name, &process.name)
        });
        hidden.map(move |process| target::entry(head, stats, process).map(Meant::Inside))
    })
}

fn take(mut sessions: Vec<Session>, meant: Meant) -> Named {
    match meant {
        Meant::Session(place) => Named::Session(sessions.swap_remove(place)),
        Meant::Job(place, index) => {
            let mut session = sessions.swap_remove(place);
            let (_, process) = session.workers.swap_remove(index);
            Named::Job(process, session.head.name)
        }
        Meant::Inside(target) => Named::Inside(target),
    }
}

/// Fails for a process outside of the cluster, on which no command can act.
pub(crate) fn must_be_in_cluster(process: &SessionProcess) -> anyhow::Result<()> {
    match (process.location, &process.state) {
        (Location::Cluster, _) => Ok(()),
        (Location::Host, ProcessState::Gone) => {
            bail!("`{}` is gone; `fiber clean` removes its leftovers", process.name)
        }
        (Location::Host, _) => {
            bail!("`{}` is a program on a host: read its output and stop it there", process.name)
        }
    }
}

/// Stops a session, with a grace period in seconds, and removes its containers or pods.
pub(crate) async fn end(cluster: &dyn Cluster, head: &str, grace: u32) -> anyhow::Result<()> {
    stop(cluster, head, grace).await?;
    Ok(cluster.remove(head).await?)
}

/// Stops a session, with a grace period in seconds, and removes all but the head.
pub(crate) async fn stop(cluster: &dyn Cluster, head: &str, grace: u32) -> anyhow::Result<()> {
    let mut workers = workers(cluster, head).await?;
    cluster.stop(head, grace).await?;
    loop {
        for worker in &workers {
            cluster.remove(worker).await?;
        }
        // A worker that the head requested last may appear after the head's end.
        workers = self::workers(cluster, head).await?;
        if workers.is_empty() {
            return Ok(());
        }
    }
}

async fn workers(cluster: &dyn Cluster, head: &str) -> anyhow::Result<Vec<String>> {
    if !cluster.lists_children() {
        // They end with their head.
        return Ok(Vec::new());
    }
    let session = all(cluster).await?.into_iter().find(|session| session.head.name == head);
    let workers = session.into_iter().flat_map(|session| session.workers);
    Ok(workers.map(|(_, worker)| worker.job).collect())
}

#[cfg(test)]
mod tests {
    use fiber_core::stats::JobPlace;

    use super::*;
    use crate::inspect::testing::{head_elsewhere, head_here, stats};

    fn process(name: &str, parent: Option<&str>) -> SessionProcess {
        SessionProcess {
            job: format!("job-{name}"),
            parent: parent.map(|parent| format!("job-{parent}")),
            ..SessionProcess::new(name, JobPlace::Other { words: String::new() })
        }
    }

    fn some() -> Vec<Session> {
        let links = [
            ("pool/worker-2", Some("b")),
            ("a", None),
            ("b", None),
            ("pool/worker-1", Some("b")),
            ("inner/worker-1", Some("pool/worker-1")),
        ];
        assemble(links.map(|(name, parent)| process(name, parent)).into())
    }

    #[test]
    fn processes_are_listed_under_their_parents_by_their_paths() {
        let sessions = some();
        let shape: Vec<_> = sessions
            .iter()
            .map(|session| {
                let workers = session.workers.iter().map(|(depth, worker)| {
                    (*depth, worker.name.as_str(), worker.parent.as_deref().unwrap())
                });
                (session.head.name.as_str(), workers.collect::<Vec<_>>())
            })
            .collect();
        let workers = vec![
            (0, "pool/worker-1", "b"),
            (1, "pool/worker-1/inner/worker-1", "pool/worker-1"),
            (0, "pool/worker-2", "b"),
        ];
        assert_eq!(shape, [("a", vec![]), ("b", workers)]);
    }

    #[test]
    fn a_name_picks_a_session_or_a_process_with_those_below_it() {
        let names = |name: &str| {
            let session = named(some(), name).map_err(|error| error.to_string())?;
            let workers = session.workers.into_iter().map(|(_, worker)| worker.name);
            Ok([session.head.name].into_iter().chain(workers).collect::<Vec<_>>())
        };
        assert_eq!(names("a"), Ok(vec!["a".to_string()]));
        assert_eq!(names("b").unwrap().len(), 4);
        let below = ["b", "pool/worker-1", "pool/worker-1/inner/worker-1"];
        assert_eq!(names("b/pool/worker-1").unwrap(), below);
        assert_eq!(names("job-pool/worker-2").unwrap(), ["b", "pool/worker-2"]);
        let unknown: Result<_, String> = names("nobody");
        assert!(unknown.unwrap_err().contains("there is no session or process `nobody`"));
    }

    #[test]
    fn a_process_of_a_program_of_this_host_is_a_job_if_its_pid_is_of_this_host() {
        let mut stats = stats("simulate", 2);
        stats.report.processes[2].set_job(JobPlace::Container { name: "fiber-1".into() });
        let (head, stats) = (head_here(4001), Ok(Arc::new(stats)));
        let sessions = observed::sessions(&[Observed { head, stats }]);
        let chosen = |name: &str| {
            let entries = entries(&sessions);
            names::choose(&entries, name, "").map_err(|error| error.to_string()).cloned()
        };
        for name in ["4001", "pid 4001", "simulate", "sim"] {
            assert!(matches!(chosen(name), Ok(Meant::Session(0))), "{name}");
        }
        for name in ["squares/worker-1", "4001/squares/worker-1", "4002", "pid 4002"] {
            assert!(matches!(chosen(name), Ok(Meant::Job(0, 0))), "{name}");
        }
        for name in ["squares/worker-2", "fiber-1"] {
            let Ok(Meant::Inside(target)) = chosen(name) else { panic!("{name}") };
            assert_eq!(target.name, "squares/worker-2");
        }
        assert_eq!(sessions[0].workers[0].1.job, "pid 4002");
    }

    /// Returns what a name means: a session, a job, or a process inside of one.
    fn meant(observed: &[Observed], name: &str) -> Result<String, String> {
        let sessions = some();
        let mut entries = entries(&sessions);
        entries.extend(inside(&sessions, observed));
        let chosen = names::choose(&entries, name, "").map_err(|error| error.to_string())?;
        Ok(match take(sessions, chosen.clone()) {
            Named::Session(session) => session.head.name,
            Named::Job(process, session) => format!("{} of {session}", process.job),
            Named::Inside(target) => format!("{} inside {}", target.name, target.head.name),
        })
    }

    #[test]
    fn names_may_be_abbreviated_but_not_ambiguous() {
        assert_eq!(meant(&[], "b").unwrap(), "b");
        for name in ["pool/worker-2", "b/pool/worker-2", "job-pool/worker-2"] {
            assert_eq!(meant(&[], name).unwrap(), "job-pool/worker-2 of b", "{name}");
        }
        assert!(meant(&[], "pool/worker-").unwrap_err().contains("type more"));
        assert!(meant(&[], "").is_err());
        assert!(meant(&[], "pool/worker-3").unwrap_err().contains("did you mean `pool/worker-"));
        assert!(meant(&[], "zzz").unwrap_err().contains("fiber ps"));
    }

    #[test]
    fn a_process_that_shares_a_job_is_found_by_its_head() {
        let mut stats = stats("program", 2);
        // One has a job of its own.
        stats.report.processes[1].name = "pool/worker-1".into();
        let head = head_elsewhere("b");
        let observed = [Observed { head, stats: Ok(Arc::new(stats)) }];
        for name in ["squares/worker-2", "b/squares/worker-2", "squares"] {
            assert_eq!(meant(&observed, name).unwrap(), "squares/worker-2 inside b", "{name}");
        }
        assert_eq!(meant(&observed, "b/pool/worker-1").unwrap(), "job-pool/worker-1 of b");
        assert_eq!(meant(&observed, "b").unwrap(), "b");
    }
}
