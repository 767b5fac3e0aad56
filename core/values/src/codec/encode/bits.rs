//! The bits of a number.

use serde::ser::{self, Error as _, Impossible, Serialize};

use super::{Error, Result};
use crate::codec::packed::Kind;

/// Takes one number, and returns its kind and its bits. Integers are extended to 64 bits.
pub(super) struct Bits;

#[cold]
fn no_number<T>() -> Result<T> {
    Err(Error::custom("a number was expected"))
}

macro_rules! numbers {
    ($($method:ident $type:ty: $kind:ident $value:ident => $bits:expr;)*) => {
        $(#[inline(always)]
        fn $method(self, $value: $type) -> Result<(Kind, u64)> {
            Ok((Kind::$kind, $bits))
        })*
    };
}

macro_rules! refused {
    ($($method:ident $(<$generic:ident>)? ($($type:ty),*) $(-> $compound:ident)?;)*) => {
        $(#[inline(always)]
        fn $method$(<$generic: Serialize + ?Sized>)?(
            self,
            $(_: $type),*
        ) -> Result<refused!(@ $($compound)?)> {
            no_number()
        })*
    };
    (@) => { (Kind, u64) };
    (@ $compound:ident) => { Self::$compound };
}

impl ser::Serializer for Bits {
    type Ok = (Kind, u64);
    type Error = Error;
    type SerializeSeq = Impossible<(Kind, u64), Error>;
    type SerializeTuple = Impossible<(Kind, u64), Error>;
    type SerializeTupleStruct = Impossible<(Kind, u64), Error>;
    type SerializeTupleVariant = Impossible<(Kind, u64), Error>;
    type SerializeMap = Impossible<(Kind, u64), Error>;
    type SerializeStruct = Impossible<(Kind, u64), Error>;
    type SerializeStructVariant = Impossible<(Kind, u64), Error>;

    numbers! {
        serialize_bool bool: Bool value => value.into();
        serialize_i8 i8: I8 value => value as u64;
        serialize_i16 i16: I16 value => value as u64;
        serialize_i32 i32: I32 value => value as u64;
        serialize_i64 i64: I64 value => value as u64;
        serialize_u8 u8: U8 value => value.into();
        serialize_u16 u16: U16 value => value.into();
        serialize_u32 u32: U32 value => value.into();
        serialize_u64 u64: U64 value => value;
        serialize_f32 f32: F32 value => value.to_bits().into();
        serialize_f64 f64: F64 value => value.to_bits();
    }

    refused! {
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_some<T>(&T);
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
        serialize_newtype_struct<T>(&'static str, &T);
        serialize_newtype_variant<T>(&'static str, u32, &'static str, &T);
        serialize_seq(Option<usize>) -> SerializeSeq;
        serialize_tuple(usize) -> SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_map(Option<usize>) -> SerializeMap;
        serialize_struct(&'static str, usize) -> SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }
}
