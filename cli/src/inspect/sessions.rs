//! All sessions whose heads can be asked: programs of this host, and heads in containers or pods.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fiber_backends::cluster::{self, Cluster, Location, ProcessState};
use fiber_core::stats::SessionStats;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::local::{self, LocalHead};
use super::{InspectError, Inspector};
use crate::args::{Backend, ClusterArgs};

/// The interval of listing the heads of an engine.
const LISTING: Duration = Duration::from_secs(5);
/// The pause before a head that did not answer is asked again.
const PAUSE: Duration = Duration::from_secs(10);
/// The pause if it can't answer. In a container, each attempt executes several programs.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// A head that has an inspector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// It runs on this host.
    Local(LocalHead),
    /// It runs in the container or pod of this name.
    Engine(String),
}

impl Head {
    /// Returns its name, as `fiber ps` shows it.
    pub(crate) fn name(&self) -> String {
        match self {
            Head::Local(head) => head.name(),
            Head::Engine(name) => name.clone(),
        }
    }
}

/// A session as its head describes it.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) head: Head,
    /// Its figures, or the reason why there are none.
    pub(crate) stats: Result<Arc<SessionStats>, InspectError>,
}

/// The sessions that a command is to see, and the connections to their heads.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// The backend that the command line names.
    backend: Option<Backend>,
    cluster: Option<Box<dyn Cluster>>,
    /// The only head that is asked.
    only: Option<Head>,
    /// Heads in the cluster, and when they were listed.
    listed: Option<(Instant, Vec<String>)>,
    connections: HashMap<String, Inspector>,
    /// Heads that did not answer, with the time when they are asked again.
    failed: HashMap<String, (Instant, InspectError)>,
}

impl Sessions {
    /// Connects to the engine that the command line or the configuration names, if any.
    pub(crate) async fn connect(args: &ClusterArgs) -> anyhow::Result<Sessions> {
        let config = args.config()?;
        let engine = !Backend::has_heads_here(&config.backend);
        let cluster = if engine { Some(cluster::connect(&config).await?) } else { None };
        Ok(Sessions {
            backend: args.backend,
            cluster,
            only: None,
            listed: None,
            connections: HashMap::new(),
            failed: HashMap::new(),
        })
    }

    /// Asks all heads for their figures.
    pub(crate) async fn look(&mut self) -> anyhow::Result<Vec<Observed>> {
        let (mut heads, mut unnamed) = self.heads().await?;
        if let Some(only) = &self.only {
            heads.retain(|head| head == only);
            unnamed.clear();
        }
        let names: Vec<String> = heads.iter().map(Head::name).collect();
        self.connections.retain(|name, _| names.contains(name));
        self.failed.retain(|name, _| names.contains(name));
        let mut asked = Vec::new();
        for head in heads {
            let connection = self.connections.remove(&head.name());
            let pause = self.failed.get(&head.name()).filter(|(until, _)| *until > Instant::now());
            asked.push((head, connection, pause.map(|(_, error)| error.clone())));
        }
        let cluster = self.cluster.as_deref();
        let answers = join_all(asked.into_iter().map(|(head, connection, paused)| async move {
            let (connection, stats) = match paused {
                Some(error) => (None, Err(error)),
                None => ask(cluster, &head, connection).await,
            };
            (head, connection, stats)
        }));
        let mut observed = Vec::new();
        for (head, connection, stats) in answers.await {
            if let Some(connection) = connection {
                self.connections.insert(head.name(), connection);
            }
            let pause = match &stats {
                Err(InspectError::Silent(_)) => Some(PAUSE),
                Err(InspectError::Unknown(_)) => Some(LONG_PAUSE),
                _ => None,
            };
            match (&stats, pause) {
                (Err(error), Some(pause)) => {
                    let now = Instant::now();
                    let paused = self.failed.get(&head.name()).is_some_and(|(end, _)| *end > now);
                    if !paused {
                        self.failed.insert(head.name(), (now + pause, error.clone()));
                    }
                }
                _ => drop(self.failed.remove(&head.name())),
            }
            let excluded = stats.as_ref().is_ok_and(|stats| self.is_excluded(&head, stats));
            if !excluded && !matches!(stats, Err(InspectError::Ended(_))) {
                observed.push(Observed { head, stats: stats.map(Arc::new) });
            }
        }
        observed.append(&mut unnamed);
        Ok(observed)
    }

    /// Asks only this head from now on: others that don't answer shall not delay it.
    pub(crate) fn limit_to(&mut self, head: Head) {
        self.only = Some(head);
    }

    /// Connects to the inspector of a head.
    pub(crate) async fn open(&self, head: &Head) -> Result<Inspector, InspectError> {
        open(self.cluster.as_deref(), head).await
    }

    /// Returns whether the command line asks for the sessions of an engine, which this is not.
    fn is_excluded(&self, head: &Head, stats: &SessionStats) -> bool {
        let other =
            |backend: Backend| backend != Backend::Local && backend.to_string() != stats.backend;
        matches!(head, Head::Local(_)) && self.backend.is_some_and(other)
    }

    /// Returns all heads, and those that can't even be named.
    async fn heads(&mut self) -> anyhow::Result<(Vec<Head>, Vec<Observed>)> {
        let (mut heads, mut unnamed) = (Vec::new(), Vec::new());
        for found in local::heads().await? {
            match found {
                Ok(head) => heads.push(Head::Local(head)),
                Err(problem) => {
                    let stats = Err(InspectError::Silent(problem));
                    unnamed.push(Observed { head: Head::Engine(String::new()), stats });
                }
            }
        }
        if let Some(cluster) = &self.cluster {
            if self.listed.as_ref().is_none_or(|(at, _)| at.elapsed() > LISTING) {
                let processes = cluster.processes().await?.into_iter();
                let heads = processes.filter(|process| {
                    process.parent.is_none()
                        && process.location == Location::Cluster
                        && process.state == ProcessState::Running
                });
                let names = heads.map(|head| head.name).collect();
                self.listed = Some((Instant::now(), names));
            }
            let listed = self.listed.iter().flat_map(|(_, names)| names);
            heads.extend(listed.cloned().map(Head::Engine));
        }
        Ok((heads, unnamed))
    }
}

async fn open(cluster: Option<&dyn Cluster>, head: &Head) -> Result<Inspector, InspectError> {
    match (head, cluster) {
        (Head::Local(head), _) => head.connect().await,
        (Head::Engine(name), Some(cluster)) => {
            Ok(Inspector::new(name.clone(), cluster.inspect(name).await?))
        }
        (Head::Engine(name), None) => {
            Err(InspectError::Unknown(format!("{name} can't be asked: no engine is connected")))
        }
    }
}

/// Asks a head for its figures. Returns the connection unless it is broken.
async fn ask(
    cluster: Option<&dyn Cluster>,
    head: &Head,
    connection: Option<Inspector>,
) -> (Option<Inspector>, Result<SessionStats, InspectError>) {
    let opened = match connection {
        Some(connection) => Ok(connection),
        None => open(cluster, head).await,
    };
    match opened {
        Ok(mut connection) => {
            let stats = connection.stats().await;
            let usable = matches!(stats, Ok(_) | Err(InspectError::Refused(_)));
            (usable.then_some(connection), stats)
        }
        Err(error) => (None, Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::FakeHead;

    #[tokio::test]
    async fn a_head_that_fails_is_asked_again_after_a_pause_each_time() {
        let head = FakeHead::answering("nonsense\n");
        let args = ClusterArgs { backend: Some(Backend::Local), namespace: None };
        let mut sessions = Sessions::connect(&args).await.unwrap();
        sessions.limit_to(Head::Local(LocalHead::own(head.socket())));
        let name = format!("pid {}", std::process::id());
        let pause = |sessions: &Sessions| sessions.failed.get(&name).map(|(until, _)| *until);
        sessions.look().await.unwrap();
        let first = pause(&sessions).expect("it has failed");
        // It is not asked meanwhile.
        sessions.look().await.unwrap();
        assert_eq!(pause(&sessions), Some(first));
        sessions.failed.get_mut(&name).unwrap().0 = Instant::now();
        sessions.look().await.unwrap();
        assert!(pause(&sessions).expect("it has failed again") > first);
    }
}
