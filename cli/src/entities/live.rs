//! Entities of sessions that run.

use std::sync::Arc;

use anyhow::bail;
use fiber_backends::cluster::SessionHead;
use fiber_core::inspect::{EntityKey, EntityKeys, EntityRecord, Request};
use fiber_core::nearest;
use fiber_core::stats::{EntitiesStats, SessionStats};

use super::Listed;
use crate::args::EntitiesSource;
use crate::inspect::Inspector;
use crate::inspect::sessions::{Observed, Sessions};
use crate::inspect::target;
use crate::terminal::warn;

/// Entities of a session.
pub(super) struct Live {
    inspector: Inspector,
    stats: Arc<SessionStats>,
    entities: EntitiesStats,
}

impl Live {
    /// Finds the entities of a name.
    pub(super) async fn find(source: &EntitiesSource, name: &str) -> anyhow::Result<Live> {
        let (mut sessions, observed) = look(source).await?;
        let all: Vec<_> = observed.iter().flat_map(entities).collect();
        let found: Vec<_> = all.iter().filter(|(.., entities)| entities.name == name).collect();
        let (head, stats, entities) = match found.as_slice() {
            [(head, stats, entities)] => (head, stats, entities),
            [] => {
                let known = all.iter().map(|(.., entities)| entities.name.as_str());
                let hint = match nearest(name, known) {
                    Some(other) => format!("did you mean `{other}`?"),
                    None => {
                        "`fiber entities list` lists all; `--journal` reads those of a program \
                             that has ended"
                            .into()
                    }
                };
                bail!("no session has entities `{name}`: {hint}{}", target::silent(&observed));
            }
            [(first, ..), (second, ..), rest @ ..] => bail!(
                "{} sessions have entities `{name}`, among them {} and {}: choose one by --session",
                rest.len() + 2,
                first.name,
                second.name
            ),
        };
        let inspector = sessions.take(head).await?;
        Ok(Live { inspector, stats: Arc::clone(stats), entities: (*entities).clone() })
    }

    pub(super) async fn keys(&mut self, prefix: &str, limit: u64) -> anyhow::Result<EntityKeys> {
        let (process, name) = (self.entities.process, self.entities.name.clone());
        let request = Request::EntityKeys { process, name, prefix: prefix.into(), limit };
        Ok(self.inspector.request(&request).await?)
    }

    pub(super) async fn record(&mut self, key: &str) -> anyhow::Result<EntityRecord> {
        let (process, name) = (self.entities.process, self.entities.name.clone());
        let request = Request::Entity { process, name, key: key.into() };
        Ok(self.inspector.request(&request).await?)
    }

    /// Returns the name of the process in which a key is live.
    pub(super) fn place(&self, key: &EntityKey) -> Option<String> {
        let id = key.live_in?;
        let known = self.stats.report.process(id).map(|process| process.name.clone());
        Some(known.unwrap_or_else(|| id.to_string()))
    }
}

pub(super) async fn list(source: &EntitiesSource) -> anyhow::Result<Vec<Listed>> {
    let (_, observed) = look(source).await?;
    for session in &observed {
        if let Err(problem) = &session.stats {
            warn(problem);
        }
    }
    let listed = |(head, stats, entities): (&SessionHead, &Arc<SessionStats>, &EntitiesStats)| {
        let keepers = stats.report.entity_processes.iter();
        let live = keepers.filter(|keeper| keeper.name == entities.name).map(|keeper| keeper.live);
        Listed {
            name: entities.name.clone(),
            of: Some(entities.of.clone()),
            session: Some(format!("{} ({})", head.name, stats.program)),
            processes: Some(entities.processes),
            live: Some(live.sum()),
            recorded: None,
            journal: entities.journal.clone(),
        }
    };
    Ok(observed.iter().flat_map(entities).map(listed).collect())
}

async fn look(source: &EntitiesSource) -> anyhow::Result<(Sessions, Vec<Observed>)> {
    let mut sessions = Sessions::connect(&source.cluster).await?;
    let mut observed = sessions.look().await?;
    if let Some(name) = &source.session {
        let head = sessions.find(&observed, name).await?.head;
        observed.retain(|session| session.head == head);
    }
    Ok((sessions, observed))
}

/// Returns the entities of a session that answers.
fn entities(
    session: &Observed,
) -> impl Iterator<Item = (&SessionHead, &Arc<SessionStats>, &EntitiesStats)> {
    let stats = session.stats.iter();
    stats.flat_map(move |stats| {
        stats.report.entities.iter().map(move |entities| (&session.head, stats, entities))
    })
}
