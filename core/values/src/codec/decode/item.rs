//! The beginning of a value.

use rmp_serde::decode::Error;
use serde::de::{Error as _, Expected, Unexpected};

use super::access::ExtensionAccess;
use super::packed::Packed;
use crate::blob::Blob;

/// A value, the header of an array or a map, or a mark.
pub(super) enum Item<'de> {
    /// An integer of up to 64 bits.
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Nil,
    Text(&'de str),
    Bytes(&'de [u8]),
    /// The number of elements follows the type.
    Array(u32),
    Map(u32),
    Extension(ExtensionAccess<'de>),
    /// `Some`, a packed run or a piece: [`Behind`] says which.
    Mark,
}

/// How to read an integer's 64 bits; `None` where no integer is.
pub(super) enum Sign {
    Unsigned,
    Signed,
    None,
}

/// The name of a field or a variant, or its number.
pub(super) enum Name<'de> {
    Text(&'de str),
    Number(u64),
}

/// The header of an array or a map; `None` where neither is.
pub(super) enum Header {
    Array(u32),
    Map(u32),
    None,
}

/// The content behind a mark.
pub(super) enum Behind<'de> {
    Run(Packed<'de>),
    Text(Blob),
    Bytes(Blob),
    /// The value of `Some`, which was not read.
    Value,
}

impl Item<'_> {
    /// The error that serde's visitors return when they don't take such a value.
    #[cold]
    pub(super) fn unexpected(&self, behind: &Behind<'_>, expected: &dyn Expected) -> Error {
        let found = match self {
            Item::Unsigned(number) => Unexpected::Unsigned(*number),
            Item::Signed(number) => Unexpected::Signed(*number),
            Item::F32(number) => Unexpected::Float((*number).into()),
            Item::F64(number) => Unexpected::Float(*number),
            Item::Bool(value) => Unexpected::Bool(*value),
            Item::Nil => Unexpected::Unit,
            Item::Text(text) => Unexpected::Str(text),
            Item::Bytes(bytes) => Unexpected::Bytes(bytes),
            Item::Array(_) => Unexpected::Seq,
            Item::Map(_) => Unexpected::Map,
            Item::Extension(_) => Unexpected::NewtypeStruct,
            Item::Mark => match behind {
                Behind::Run(_) => Unexpected::Seq,
                Behind::Text(text) => std::str::from_utf8(text)
                    .map_or_else(|_| Unexpected::Bytes(text), Unexpected::Str),
                Behind::Bytes(bytes) => Unexpected::Bytes(bytes),
                Behind::Value => Unexpected::Option,
            },
        };
        Error::invalid_type(found, expected)
    }
}
