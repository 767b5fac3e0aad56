//! All sessions whose heads can be asked: programs of this host, and heads in containers or pods.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use fiber_backends::cluster::{self, Cluster, ProcessState, SessionHead, SessionProcess};
use fiber_core::is_stopped;
use fiber_core::stats::SessionStats;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::target::{self, Located, Target};
use super::{InspectError, Inspector};
use crate::args::ClusterArgs;

/// The interval of listing the heads of an engine.
const LISTING: Duration = Duration::from_secs(5);
/// The pause before a head that did not answer is asked again.
const PAUSE: Duration = Duration::from_secs(10);
/// The pause if it can't answer. In a container, each attempt executes several programs.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// A session as its head describes it.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) head: SessionHead,
    /// Its statistics, or the reason why there are none.
    pub(crate) stats: Result<Arc<SessionStats>, InspectError>,
}

/// The sessions that a command is to see, and the connections to their heads.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// The programs of this host.
    host: Box<dyn Cluster>,
    /// The engine that the command line or the configuration names, if any.
    engine: Option<Box<dyn Cluster>>,
    /// Whether the command line names the backend, and so asks for no sessions of others.
    is_named: bool,
    /// The name of the only head that is asked.
    only: Option<String>,
    /// Heads in the engine, and when they were listed.
    listed: Option<(Instant, Vec<SessionHead>)>,
    /// Connections by their inspectors.
    connections: HashMap<String, Inspector>,
    /// Inspectors that are not asked until this time, because they did not answer.
    failed: HashMap<String, (Instant, InspectError)>,
}

impl Sessions {
    /// Connects to the cluster that the command line or the configuration names.
    pub(crate) async fn connect(args: &ClusterArgs) -> anyhow::Result<Sessions> {
        let chosen = cluster::connect(&args.config()?).await?;
        let (host, engine) = match chosen.lists_children() {
            true => (cluster::host(), Some(chosen)),
            false => (chosen, None),
        };
        Ok(Sessions { engine, is_named: args.backend.is_some(), ..Sessions::on(host) })
    }

    /// Returns all programs of this host.
    pub(crate) fn of_host() -> Sessions {
        Sessions::on(cluster::host())
    }

    fn on(host: Box<dyn Cluster>) -> Sessions {
        Sessions {
            host,
            engine: None,
            is_named: false,
            only: None,
            listed: None,
            connections: HashMap::new(),
            failed: HashMap::new(),
        }
    }

    /// Asks all heads for their statistics.
    pub(crate) async fn look(&mut self) -> anyhow::Result<Vec<Observed>> {
        let (mut heads, mut unnamed) = self.heads().await?;
        if let Some(only) = &self.only {
            heads.retain(|head| head.name == *only);
            unnamed.clear();
        }
        let known = |inspector: &String| heads.iter().any(|head| head.inspector == *inspector);
        let now = Instant::now();
        self.connections.retain(|inspector, _| known(inspector));
        self.failed.retain(|inspector, (until, _)| known(inspector) && *until > now);
        let mut asked = Vec::new();
        for head in heads {
            let connection = self.connections.remove(&head.inspector);
            let paused = self.failed.get(&head.inspector).map(|(_, error)| error.clone());
            asked.push((head, connection, paused));
        }
        let sessions = &*self;
        let answers = join_all(asked.into_iter().map(|(head, connection, paused)| async move {
            let (connection, stats) = match paused {
                Some(error) => (None, Err(error)),
                None => sessions.ask(&head, connection).await,
            };
            (head, connection, stats)
        }));
        let mut observed = Vec::new();
        for (head, connection, stats) in answers.await {
            let inspector = head.inspector.clone();
            if let Some(connection) = connection {
                self.connections.insert(inspector.clone(), connection);
            }
            let pause = match &stats {
                Err(error @ InspectError::Silent(_)) => Some((PAUSE, error)),
                Err(error @ InspectError::Unknown(_)) => Some((LONG_PAUSE, error)),
                _ => None,
            };
            if let Some((pause, error)) = pause {
                // A pause that has begun keeps its end.
                let until = Instant::now() + pause;
                self.failed.entry(inspector).or_insert_with(|| (until, error.clone()));
            }
            let excluded = stats.as_ref().is_ok_and(|stats| self.is_excluded(&head, stats));
            if !excluded && !matches!(stats, Err(InspectError::Ended(_))) {
                observed.push(Observed { head, stats: stats.map(Arc::new) });
            }
        }
        remove_twins(&mut observed);
        observed.append(&mut unnamed);
        Ok(observed)
    }

    /// Returns the process that a name means, of the sessions that this has seen.
    ///
    /// # Errors
    /// No process has the name. For a session that the engine lists and that does not answer, the
    /// error names its state.
    pub(crate) async fn find(&self, observed: &[Observed], name: &str) -> anyhow::Result<Target> {
        self.locate(observed, name).await?.known()
    }

    /// Returns what a name means, also in sessions whose heads do not answer.
    ///
    /// # Errors
    /// As [`find`](Sessions::find), but for those.
    pub(crate) async fn locate(
        &self,
        observed: &[Observed],
        name: &str,
    ) -> anyhow::Result<Located> {
        match target::locate(observed, name) {
            Ok(located) => Ok(located),
            Err(error) => {
                Err(self.silence_of(name).await.map_or(error, |silence| anyhow!(silence)))
            }
        }
    }

    /// Returns why the session of a name can't be asked, if the engine lists it.
    async fn silence_of(&self, name: &str) -> Option<String> {
        let processes = self.engine.as_ref()?.processes().await.ok()?;
        let is_meant = |process: &&SessionProcess| process.name == name && process.parent.is_none();
        let head = processes.iter().find(is_meant)?;
        let why = match &head.state {
            ProcessState::Starting(None) => "starts".into(),
            ProcessState::Starting(Some(why)) => format!("waits: {why}"),
            ProcessState::Paused(command) => format!("is paused: `{command}` lets it go on"),
            ProcessState::Ended(ended) => {
                let reason = ended.reason.as_ref().map_or(String::new(), |why| format!(", {why}"));
                format!("has ended ({}{reason}): `fiber logs {name}` shows its output", ended.code)
            }
            ProcessState::Gone => "is gone".into(),
            ProcessState::Running | ProcessState::Silent(_) => return None,
        };
        Some(format!("{name} {why}"))
    }

    /// Asks only the heads of this name from now on: others that don't answer shall not delay it.
    pub(crate) fn limit_to(&mut self, head: &str) {
        self.only = Some(head.to_string());
    }

    /// Returns whether only one head is asked.
    pub(crate) fn is_limited(&self) -> bool {
        self.only.is_some()
    }

    /// Returns the connection to the inspector of a head, or a new one: an engine may have room for
    /// one alone.
    pub(crate) async fn take(&mut self, head: &SessionHead) -> Result<Inspector, InspectError> {
        match self.connections.remove(&head.inspector) {
            Some(connection) => Ok(connection),
            None => self.open(head).await,
        }
    }

    /// Connects to the inspector of a head.
    async fn open(&self, head: &SessionHead) -> Result<Inspector, InspectError> {
        let cluster = match (head.pid, &self.engine) {
            (None, Some(engine)) => engine,
            _ => &self.host,
        };
        open(&**cluster, head).await
    }

    /// Asks a head for its statistics. Returns the connection unless it is broken.
    async fn ask(
        &self,
        head: &SessionHead,
        connection: Option<Inspector>,
    ) -> (Option<Inspector>, Result<SessionStats, InspectError>) {
        if let Some(pid) = head.pid.filter(|pid| is_stopped(*pid)) {
            return (None, Err(InspectError::stopped(&head.name, pid)));
        }
        let opened = match connection {
            Some(connection) => Ok(connection),
            None => self.open(head).await,
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

    /// Returns whether the command line asks for the sessions of a backend, which this is not.
    fn is_excluded(&self, head: &SessionHead, stats: &SessionStats) -> bool {
        let asked = self.engine.as_ref().unwrap_or(&self.host);
        self.is_named && head.pid.is_some() && !asked.includes(&stats.backend)
    }

    /// Returns all heads, and those that can't even be named.
    pub(super) async fn heads(&mut self) -> anyhow::Result<(Vec<SessionHead>, Vec<Observed>)> {
        let mut found = self.host.heads().await?;
        if let Some(engine) = &self.engine {
            if self.listed.as_ref().is_none_or(|(at, _)| at.elapsed() > LISTING) {
                let heads = engine.heads().await?.into_iter().flatten().collect();
                self.listed = Some((Instant::now(), heads));
            }
            let listed = self.listed.iter().flat_map(|(_, heads)| heads);
            found.extend(listed.cloned().map(Ok));
        }
        let (mut heads, mut unnamed) = (Vec::new(), Vec::new());
        for head in found {
            match head {
                Ok(head) => heads.push(head),
                Err(problem) => {
                    let (name, inspector) = (String::new(), String::new());
                    let head = SessionHead { name, inspector, pid: None };
                    unnamed.push(Observed { head, stats: Err(InspectError::Silent(problem)) });
                }
            }
        }
        Ok((heads, unnamed))
    }
}

async fn open(cluster: &dyn Cluster, head: &SessionHead) -> Result<Inspector, InspectError> {
    match cluster.inspect(&head.inspector).await {
        Ok(stream) => Ok(Inspector::new(head.name.clone(), stream)),
        Err(error) => Err(InspectError::of_connecting(&head.name, error)),
    }
}

/// Returns the numbers of the sessions of a cluster, as far as their heads answer.
pub(crate) async fn numbers(cluster: &dyn Cluster) -> Vec<String> {
    let heads = cluster.heads().await.unwrap_or_default().into_iter().flatten();
    let asked = heads.map(|head| async move {
        let mut inspector = open(cluster, &head).await.ok()?;
        Some(inspector.stats().await.ok()?.session)
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Removes the heads on this host that an engine lists, too, such as that of a Slurm job on this
/// machine. The session is called by the engine's name.
fn remove_twins(observed: &mut Vec<Observed>) {
    let number =
        |session: &Observed| session.stats.as_ref().ok().map(|stats| stats.session.clone());
    let is_here = |session: &Observed| session.head.pid.is_some();
    let listed: Vec<_> =
        observed.iter().filter(|session| !is_here(session)).filter_map(number).collect();
    observed.retain(|session| {
        !is_here(session) || number(session).is_none_or(|number| !listed.contains(&number))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::{FakeHead, head_elsewhere, head_here, stats};

    #[test]
    fn a_head_that_an_engine_lists_is_one_session() {
        let observed = |head, number: &str| {
            let mut stats = stats("program", 1);
            stats.session = number.into();
            Observed { head, stats: Ok(Arc::new(stats)) }
        };
        let (local, other) = (head_here(1), head_here(2));
        let engine = head_elsewhere("fiber-1");
        let mut all =
            vec![observed(local, "a"), observed(other.clone(), "b"), observed(engine.clone(), "a")];
        remove_twins(&mut all);
        let heads: Vec<_> = all.into_iter().map(|session| session.head).collect();
        assert_eq!(heads, [other, engine]);
    }

    #[tokio::test]
    async fn a_question_after_a_look_takes_its_connection() {
        let head = FakeHead::start(stats("squares", 1));
        let own = head.session_head();
        let mut sessions = Sessions::of_host();
        sessions.limit_to(&own.name);
        sessions.look().await.unwrap();
        let connections = head.connections();
        sessions.take(&own).await.unwrap().stats().await.unwrap();
        assert_eq!(head.connections(), connections);
    }

    #[tokio::test]
    async fn a_head_that_fails_is_asked_again_after_a_pause_each_time() {
        let head = FakeHead::answering("nonsense\n");
        let mut sessions = Sessions::of_host();
        sessions.limit_to(&head.session_head().name);
        let pause =
            |sessions: &Sessions| sessions.failed.get(&head.socket()).map(|(until, _)| *until);
        sessions.look().await.unwrap();
        let first = pause(&sessions).expect("it has failed");
        // It is not asked meanwhile.
        sessions.look().await.unwrap();
        assert_eq!(pause(&sessions), Some(first));
        sessions.failed.get_mut(&head.socket()).unwrap().0 = Instant::now();
        sessions.look().await.unwrap();
        assert!(pause(&sessions).expect("it has failed again") > first);
    }
}
