//! Entities, as the process that owns them shows them.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::id::ProcessId;
use crate::stats::units;

/// Some keys of entities, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EntityKeys {
    /// The first keys.
    pub keys: Vec<EntityKey>,
    /// How many there are beside these.
    pub more: u64,
}

/// A key that has an entity, a record or reminders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EntityKey {
    /// The key.
    pub key: String,
    /// The process in which its entity is live; `None` if it sleeps.
    pub live_in: Option<ProcessId>,
    /// The messages that the entity has not answered.
    pub unanswered: u64,
    /// The number of its last recorded event, from 1; 0 if there is none.
    pub last_event: u64,
    /// How many events its record has: those since the last snapshot.
    pub events: u64,
    /// Whether its record has a snapshot.
    pub has_snapshot: bool,
    /// How many reminders it has.
    pub reminders: u64,
}

/// A key and its record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EntityRecord {
    /// The key.
    pub of: EntityKey,
    /// The last snapshot. Its number is that of the last event before it.
    pub snapshot: Option<RecordedValue>,
    /// The events since the snapshot, in the order of their numbers.
    pub events: Vec<RecordedValue>,
    /// The reminders.
    pub reminders: Vec<RecordedReminder>,
}

/// A recorded value, as it is encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedValue {
    /// Its number.
    pub number: u64,
    /// Its encoding.
    pub bytes: Vec<u8>,
    /// The large arrays and texts in it.
    pub blobs: Vec<Vec<u8>>,
}

/// A recorded reminder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedReminder {
    /// Its name.
    pub name: String,
    /// When it comes next.
    #[serde(with = "units::time")]
    pub due: SystemTime,
    /// After how many seconds it comes again.
    pub every: Option<f64>,
}
