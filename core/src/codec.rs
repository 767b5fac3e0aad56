//! How values travel: MessagePack, with structs as maps.
//!
//! Maps cost some bytes against arrays, and keep `#[serde(skip_serializing_if)]`, `flatten` and `default` correct.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Appends `value` to `out`.
///
/// # Errors
/// [`Error::Encode`] with serde's words, when the value can't be serialised; `out` may then hold a part of it.
pub fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<()> {
    let mut serializer = rmp_serde::Serializer::new(out).with_struct_map();
    value
        .serialize(&mut serializer)
        .map_err(|error| Error::Encode { what: std::any::type_name::<T>(), problem: error.to_string() })
}

/// `value` in a buffer of its own.
///
/// # Errors
/// As [`append`].
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    append(&mut out, value)?;
    Ok(out)
}

/// Reads a value back.
///
/// # Errors
/// [`Error::Decode`] with serde's words and the type that was wanted.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes)
        .map_err(|error| Error::Decode { what: std::any::type_name::<T>(), problem: error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Gaps {
        #[serde(skip_serializing_if = "Option::is_none")]
        first: Option<u8>,
        second: Vec<BTreeMap<String, (i64, f32)>>,
    }

    #[test]
    fn a_skipped_field_does_not_shift_the_next() {
        let value = Gaps { first: None, second: vec![BTreeMap::from([("a".into(), (-1, 0.5))])] };
        assert_eq!(decode::<Gaps>(&encode(&value).unwrap()).unwrap(), value);
    }

    #[test]
    fn a_wrong_type_is_named() {
        let error = decode::<Gaps>(&encode("text").unwrap()).unwrap_err();
        assert!(error.to_string().contains("Gaps"), "{error}");
    }
}
