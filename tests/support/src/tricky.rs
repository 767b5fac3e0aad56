//! A value whose parts an encoding with a single nil would confuse.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum External {
    Newtype(Option<Option<()>>),
    Tuple(Option<Unit>, Option<()>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tag")]
enum Internal {
    Struct { field: Option<Option<u8>>, list: Vec<Option<()>> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tag", content = "content")]
enum Adjacent {
    Newtype(Option<Option<u8>>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Newtype(Option<Option<Option<u8>>>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    inside: Option<Option<()>>,
}

/// A value with nested options, units and all representations of enums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tricky {
    options: Vec<Option<Option<Option<u8>>>>,
    units: (Option<()>, Option<Unit>),
    keys: BTreeMap<Option<Option<u8>>, Option<()>>,
    wide: Option<Option<i128>>,
    result: Result<Option<()>, Option<()>>,
    external: Vec<External>,
    internal: Internal,
    adjacent: Adjacent,
    untagged: Untagged,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skipped: Option<Option<u8>>,
    #[serde(flatten)]
    flat: Flat,
}

/// Returns a value with each kind of nil.
pub fn tricky() -> Tricky {
    Tricky {
        options: vec![None, Some(None), Some(Some(None)), Some(Some(Some(0)))],
        units: (Some(()), Some(Unit)),
        keys: BTreeMap::from([(None, None), (Some(None), Some(())), (Some(Some(1)), None)]),
        wide: Some(Some(i128::MIN)),
        result: Ok(Some(())),
        external: vec![External::Newtype(Some(None)), External::Tuple(Some(Unit), Some(()))],
        internal: Internal::Struct { field: Some(None), list: vec![None, Some(())] },
        adjacent: Adjacent::Newtype(Some(None)),
        untagged: Untagged::Newtype(Some(Some(None))),
        skipped: Some(None),
        flat: Flat { inside: Some(Some(())) },
    }
}
