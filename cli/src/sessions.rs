//! Sessions, assembled from the processes that an engine lists.

use anyhow::bail;
use fiber_backends::cluster::{Cluster, Location, ProcessState, SessionProcess};

use crate::names::closest;

/// A program with the processes that it started.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) head: SessionProcess,
    /// Each worker, with the number of processes between it and the head.
    pub(crate) workers: Vec<(usize, SessionProcess)>,
}

/// Returns all sessions, oldest first.
pub(crate) async fn all(cluster: &dyn Cluster) -> anyhow::Result<Vec<Session>> {
    Ok(assemble(cluster.processes().await?))
}

fn assemble(mut processes: Vec<SessionProcess>) -> Vec<Session> {
    processes.sort_by(|a, b| (a.started_at, &a.role).cmp(&(b.started_at, &b.role)));
    let (heads, mut others): (Vec<_>, Vec<_>) =
        processes.into_iter().partition(|process| process.parent.is_none());
    let session = |head: SessionProcess| {
        let mut workers = Vec::new();
        take_children(&head.name, 0, &mut others, &mut workers);
        Session { head, workers }
    };
    heads.into_iter().map(session).collect()
}

fn take_children(
    parent: &str,
    depth: usize,
    others: &mut Vec<SessionProcess>,
    taken: &mut Vec<(usize, SessionProcess)>,
) {
    let is_child = |process: &mut SessionProcess| process.parent.as_deref() == Some(parent);
    let children: Vec<SessionProcess> = others.extract_if(.., is_child).collect();
    for child in children {
        let name = child.name.clone();
        taken.push((depth, child));
        take_children(&name, depth + 1, others, taken);
    }
}

/// The session or worker that a name stands for.
#[derive(Debug)]
pub(crate) enum Named {
    Session(Session),
    /// A worker, with the name of its session's head.
    Worker(SessionProcess, String),
}

impl Named {
    pub(crate) fn process(&self) -> &SessionProcess {
        match self {
            Named::Session(session) => &session.head,
            Named::Worker(worker, _) => worker,
        }
    }
}

/// Returns the session or worker of this name, or the only one whose name begins with it.
pub(crate) async fn find(cluster: &dyn Cluster, name: &str) -> anyhow::Result<Named> {
    choose(all(cluster).await?, name)
}

fn choose(sessions: Vec<Session>, name: &str) -> anyhow::Result<Named> {
    let names: Vec<String> = sessions
        .iter()
        .flat_map(|session| {
            [&session.head].into_iter().chain(session.workers.iter().map(|(_, worker)| worker))
        })
        .map(|process| process.name.clone())
        .collect();
    let begins = |known: &&String| known.starts_with(name);
    let meant: Vec<&String> = match names.iter().find(|known| *known == name) {
        Some(exact) => vec![exact],
        // Sessions take precedence over their workers, whose names may begin with the session's.
        None => {
            let heads = sessions
                .iter()
                .map(|session| &session.head.name)
                .filter(begins)
                .collect::<Vec<_>>();
            if heads.is_empty() { names.iter().filter(begins).collect() } else { heads }
        }
    };
    let chosen = match meant.as_slice() {
        [one] if !name.is_empty() => (*one).clone(),
        [] | [_] => match closest(name, names.iter().map(String::as_str)) {
            Some(other) => bail!("there is no session or worker `{name}`: did you mean `{other}`?"),
            None => bail!("there is no session or worker `{name}`: `fiber ps` lists all"),
        },
        [first, second, ..] => {
            bail!(
                "`{name}` is the beginning of {} names, among them {first} and {second}: type more \
                 of it",
                meant.len()
            )
        }
    };
    for mut session in sessions {
        if session.head.name == chosen {
            return Ok(Named::Session(session));
        }
        if let Some(place) = session.workers.iter().position(|(_, worker)| worker.name == chosen) {
            let (_, worker) = session.workers.swap_remove(place);
            return Ok(Named::Worker(worker, session.head.name));
        }
    }
    bail!("`{chosen}` was removed meanwhile")
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
    let mut workers = workers(cluster, head).await?;
    cluster.stop(head, grace).await?;
    loop {
        for worker in &workers {
            cluster.remove(worker).await?;
        }
        // A worker that the head requested last may appear after the head's end.
        workers = self::workers(cluster, head).await?;
        if workers.is_empty() {
            return Ok(cluster.remove(head).await?);
        }
    }
}

async fn workers(cluster: &dyn Cluster, head: &str) -> anyhow::Result<Vec<String>> {
    let session = all(cluster).await?.into_iter().find(|session| session.head.name == head);
    let workers = session.into_iter().flat_map(|session| session.workers);
    Ok(workers.map(|(_, worker)| worker.name).collect())
}

#[cfg(test)]
mod tests {
    use fiber_core::Meta;

    use super::*;

    fn process(name: &str, parent: Option<&str>) -> SessionProcess {
        SessionProcess {
            name: name.into(),
            role: name.into(),
            parent: parent.map(String::from),
            location: Location::Cluster,
            state: ProcessState::Running,
            restarts: 0,
            meta: Meta::new(),
            started_at: None,
            usage: None,
        }
    }

    fn some() -> Vec<Session> {
        let links = [
            ("b-2", Some("b")),
            ("a", None),
            ("b", None),
            ("b-1", Some("b")),
            ("b-1-1", Some("b-1")),
        ];
        assemble(links.map(|(name, parent)| process(name, parent)).into())
    }

    #[test]
    fn processes_are_listed_under_their_parents() {
        let sessions = some();
        let shape: Vec<_> = sessions
            .iter()
            .map(|session| {
                let workers =
                    session.workers.iter().map(|(depth, worker)| (*depth, worker.name.as_str()));
                (session.head.name.as_str(), workers.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(shape, [("a", vec![]), ("b", vec![(0, "b-1"), (1, "b-1-1"), (0, "b-2")])]);
    }

    #[test]
    fn names_may_be_abbreviated_but_not_ambiguous() {
        assert_eq!(choose(some(), "b").unwrap().process().name, "b");
        assert_eq!(choose(some(), "b-1").unwrap().process().name, "b-1");
        assert_eq!(choose(some(), "b-2").unwrap().process().name, "b-2");
        assert!(choose(some(), "b-").unwrap_err().to_string().contains("type more"));
        assert!(choose(some(), "").is_err());
        assert!(choose(some(), "b-3").unwrap_err().to_string().contains("did you mean `b-"));
        assert!(choose(some(), "zzz").unwrap_err().to_string().contains("fiber ps"));
    }
}
