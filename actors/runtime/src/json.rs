//! Parts of messages in JSON, for serde's attribute `with`.
//!
//! The command reads statistics in JSON, and code sets the configuration in texts. In one format,
//! each of their types is compiled once.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<T: Serialize, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&serde_json::to_string(value).map_err(S::Error::custom)?)
}

pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    fiber_core::read_json(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}
