use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::ProcessId;

/// Actors of one type, one for each key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EntitiesStats {
    /// The process that owns them.
    pub process: ProcessId,
    /// Their name.
    pub name: String,
    /// The type of the actors.
    pub of: String,
    /// How many processes keep them.
    pub processes: u64,
    /// The journal of their state. `None` if it is in memory, or not kept.
    pub journal: Option<PathBuf>,
}

impl EntitiesStats {
    #[doc(hidden)]
    pub fn new(process: ProcessId, name: String, of: String) -> EntitiesStats {
        EntitiesStats { process, name, of, processes: 0, journal: None }
    }
}

/// A process that keeps entities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EntityProcessStats {
    /// The process.
    pub process: ProcessId,
    /// The name of the entities.
    pub name: String,
    /// How many keys have a live entity.
    pub live: u64,
}

impl EntityProcessStats {
    #[doc(hidden)]
    pub fn new(process: ProcessId, name: String, live: u64) -> EntityProcessStats {
        EntityProcessStats { process, name, live }
    }
}
