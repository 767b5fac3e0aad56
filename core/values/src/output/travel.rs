//! How outputs travel to other processes.
//!
//! Values know nothing of processes, so the crate that does says how.

use std::sync::{Arc, OnceLock};

use fiber_core::Result;
use serde::{Deserialize, Deserializer, Serializer, de, ser};

use super::OutputCell;

/// How cells travel: set once, by [`set`].
#[derive(Clone, Copy, Debug)]
pub struct Travel {
    /// Encodes a handle of the cell's value, for a value that this thread encodes.
    pub encode: fn(&Arc<OutputCell>) -> Result<Vec<u8>>,
    /// Makes a cell of a handle, for a value that this thread decodes.
    pub decode: fn(&[u8]) -> Result<Arc<OutputCell>>,
    /// Asks the process that has a cell's value for it, unless it is this one or has been asked.
    pub ask: fn(&Arc<OutputCell>),
}

static TRAVEL: OnceLock<Travel> = OnceLock::new();

/// Says how cells travel. Later calls change nothing.
pub fn set(travel: Travel) {
    TRAVEL.get_or_init(|| travel);
}

pub(super) fn ask(cell: &Arc<OutputCell>) {
    if let Some(travel) = TRAVEL.get() {
        (travel.ask)(cell);
    }
}

fn travel<E>(error: impl FnOnce(&'static str) -> E) -> Result<&'static Travel, E> {
    TRAVEL.get().ok_or_else(|| error("fiber has not started in this process"))
}

pub(super) fn serialize<S: Serializer>(
    cell: &Arc<OutputCell>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let travel = travel(<S::Error as ser::Error>::custom)?;
    let handle = (travel.encode)(cell).map_err(ser::Error::custom)?;
    serializer.serialize_bytes(&handle)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Arc<OutputCell>, D::Error> {
    let handle = serde_bytes::ByteBuf::deserialize(deserializer)?;
    let travel = travel(<D::Error as de::Error>::custom)?;
    (travel.decode)(&handle).map_err(de::Error::custom)
}
