use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};

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
    #[serde(serialize_with = "lossy")]
    pub journal: Option<PathBuf>,
}

/// Writes a path whose bytes may be no UTF-8, which serde refuses.
fn lossy<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
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

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_journal_may_have_any_name() {
        let mut stats = EntitiesStats::new(ProcessId(1), "accounts".into(), "A".into());
        stats.journal = Some(std::ffi::OsString::from_vec(b"caf\xe9".into()).into());
        let json = serde_json::to_string(&stats).unwrap();
        let read: EntitiesStats = serde_json::from_str(&json).unwrap();
        assert_eq!(read.journal, Some("caf\u{fffd}".into()));
    }
}
