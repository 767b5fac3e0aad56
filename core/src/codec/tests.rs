mod enums;
mod model;
mod refused;
mod wire;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, serde::Deserialize,
)]
struct Unit;

/// Encodes a value with rmp-serde.
fn by_rmp_serde<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.serialize(&mut rmp_serde::Serializer::new(&mut out).with_struct_map()).unwrap();
    out
}

/// Checks that `value` survives encoding and decoding. If it does so with rmp-serde too, checks
/// that the bytes are equal.
fn arrives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let bytes = encode(value).unwrap();
    assert_eq!(&decode::<T>(&bytes).unwrap(), value);
    let theirs = by_rmp_serde(value);
    if rmp_serde::from_slice::<T>(&theirs).is_ok_and(|arrived| &arrived == value) {
        assert_eq!(bytes, theirs, "{value:?}");
    }
}
