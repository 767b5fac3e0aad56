//! Entities as `fiber top` and `fiber entities` show them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::{Addr, Message};
use fiber_core::ProcessId;
use fiber_core::inspect::{EntityKey, EntityKeys, EntityRecord, RecordedValue, Request};
use fiber_core::stats::{EntitiesStats, EntityProcessStats, Report};
use fiber_runtime::sources::{Answer, Source};
use fiber_values::codec::EncodedValue;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::coordinator::{Coordination, Coordinator, With};
use super::wire::Record;

/// The most keys in an answer: the coordinator reads the record of each.
const MOST_KEYS: u64 = 10_000;

/// The statistics of entities, in the process that owns them.
pub(super) struct Owned {
    name: Arc<str>,
    of: &'static str,
    coordinator: Addr<Coordinator>,
    journal: Option<PathBuf>,
    processes: AtomicU64,
}

impl Owned {
    pub(super) fn new(
        name: Arc<str>,
        of: &'static str,
        coordinator: Addr<Coordinator>,
        journal: Option<PathBuf>,
    ) -> Owned {
        Owned { name, of, coordinator, journal, processes: AtomicU64::new(0) }
    }

    pub(super) fn set_processes(&self, count: usize) {
        self.processes.store(count as u64, Ordering::Relaxed);
    }

    fn ask<W>(&self, work: impl FnOnce(Rc<Coordination>) -> W + Send + 'static) -> Answer
    where
        W: Future<Output = Result<String, String>> + 'static,
    {
        let coordinator = self.coordinator.clone();
        Box::pin(async move {
            let ended = |_| Err("the entities have ended meanwhile".into());
            coordinator.send(With(work)).await.unwrap_or_else(ended)
        })
    }
}

impl Source for Owned {
    fn report(&self, process: ProcessId, report: &mut Report) {
        let mut stats = EntitiesStats::new(process, self.name.to_string(), self.of.into());
        stats.processes = self.processes.load(Ordering::Relaxed);
        stats.journal = self.journal.clone();
        report.entities.push(stats);
    }

    fn answer(&self, request: &Request) -> Option<Answer> {
        match request {
            Request::EntityKeys { name, prefix, limit, .. } if **name == *self.name => {
                let (prefix, limit) = (prefix.clone(), *limit);
                Some(self.ask(move |state| async move { json(&state.keys(prefix, limit).await?) }))
            }
            Request::Entity { name, key, .. } if **name == *self.name => {
                let key = key.clone();
                Some(self.ask(move |state| async move { json(&state.record(key).await?) }))
            }
            _ => None,
        }
    }
}

/// The statistics of a process that keeps entities.
pub(super) struct KeeperStats {
    /// The name of the entities.
    pub(super) name: Arc<str>,
    live: AtomicU64,
}

impl KeeperStats {
    pub(super) fn new(name: Arc<str>) -> KeeperStats {
        KeeperStats { name, live: AtomicU64::new(0) }
    }

    pub(super) fn started(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for KeeperStats {
    fn report(&self, process: ProcessId, report: &mut Report) {
        let live = self.live.load(Ordering::Relaxed);
        let stats = EntityProcessStats::new(process, self.name.to_string(), live);
        report.entity_processes.push(stats);
    }
}

/// Asks a process for its live entities whose keys begin with this.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct AskLives {
    pub(super) prefix: String,
}

impl Message for AskLives {
    type Result = Option<Lives>;
}

/// The live entities of a process.
#[derive(Serialize, Deserialize)]
pub(super) struct Lives {
    pub(super) process: ProcessId,
    /// Their keys, and how many messages each has not answered.
    pub(super) keys: Vec<(String, u64)>,
}

impl Coordination {
    async fn keys(&self, prefix: String, limit: u64) -> Result<EntityKeys, String> {
        let mut lives = self.lives(&prefix).await;
        let reminders = self.reminders.counts(&prefix);
        let mut keys = self.records.keys(&prefix);
        keys.extend(lives.keys().cloned());
        keys.extend(reminders.keys().cloned());
        let count = keys.len();
        let mut shown = Vec::new();
        for key in keys.into_iter().take(limit.min(MOST_KEYS) as usize) {
            let record = self.load(&key)?;
            let live = lives.remove(&key);
            let count = reminders.get(&key).copied().unwrap_or(0);
            shown.push(described(key, &record, live, count));
        }
        Ok(EntityKeys { more: (count - shown.len()) as u64, keys: shown })
    }

    async fn record(&self, key: String) -> Result<EntityRecord, String> {
        let live = self.lives(&key).await.remove(&key);
        let record = self.load(&key)?;
        let reminders = self.reminders.of_key(&key);
        let of = described(key, &record, live, reminders.len() as u64);
        let snapshot = record.snapshot.map(value);
        let events = record.events.into_iter().map(value).collect();
        Ok(EntityRecord { of, snapshot, events, reminders })
    }

    fn load(&self, key: &str) -> Result<Record, String> {
        self.records.load(key).map_err(|problem| format!("`{key}` can't be read: {problem:?}"))
    }

    /// Returns where the keys that begin with this are live, and how many messages they have not
    /// answered.
    async fn lives(&self, prefix: &str) -> BTreeMap<String, (ProcessId, u64)> {
        let asked = self.ask_lives(&AskLives { prefix: prefix.into() });
        // A process that is gone has no entities.
        let answers = join_all(asked).await.into_iter().filter_map(|lives| lives.ok().flatten());
        let live = |Lives { process, keys }: Lives| {
            keys.into_iter().map(move |(key, unanswered)| (key, (process, unanswered)))
        };
        answers.flat_map(live).collect()
    }
}

fn described(
    key: String,
    record: &Record,
    live: Option<(ProcessId, u64)>,
    reminders: u64,
) -> EntityKey {
    EntityKey {
        key,
        live_in: live.map(|(process, _)| process),
        unanswered: live.map_or(0, |(_, unanswered)| unanswered),
        last_event: record.last(),
        events: record.events.len() as u64,
        has_snapshot: record.snapshot.is_some(),
        reminders,
    }
}

fn value((number, value): (u64, EncodedValue)) -> RecordedValue {
    let blobs = value.blobs.iter().map(|blob| blob.to_vec()).collect();
    RecordedValue { number, bytes: value.bytes.to_vec(), blobs }
}

fn json(answer: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(answer).map_err(|error| error.to_string())
}
