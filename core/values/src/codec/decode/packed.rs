//! Access to the numbers of a packed run.

use rmp_serde::decode::Error;
use serde::de::{self, DeserializeSeed, Error as _, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::Result;
use crate::blob::Blob;
use crate::codec::packed::Kind;

/// A packed run: its bytes are in the encoding, or in a blob.
pub(super) enum Packed<'de> {
    Here(Run<'de>),
    Apart(Kind, Blob),
}

impl Packed<'_> {
    #[inline]
    pub(super) fn run(&self) -> Run<'_> {
        match self {
            Packed::Here(run) => *run,
            Packed::Apart(kind, blob) => Run { kind: *kind, bytes: blob },
        }
    }
}

/// A sequence of numbers of one type.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) kind: Kind,
    /// A whole number of numbers.
    pub(super) bytes: &'a [u8],
}

impl Run<'_> {
    pub(super) fn visit<'de, V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value> {
        let len = self.left();
        let value = visitor.visit_seq(&mut self)?;
        match self.left() {
            0 => Ok(value),
            left => Err(Error::LengthMismatch((len - left) as u32)),
        }
    }

    #[inline]
    fn left(&self) -> usize {
        self.bytes.len() / self.kind.width()
    }
}

impl<'de> de::SeqAccess<'de> for Run<'_> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let Some((number, rest)) = self.bytes.split_at_checked(self.kind.width()) else {
            return Ok(None);
        };
        self.bytes = rest;
        seed.deserialize(Number { kind: self.kind, bits: self.kind.read(number) }).map(Some)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left())
    }
}

/// A number of a run. Types see what they see of a number outside of a run.
struct Number {
    kind: Kind,
    bits: u64,
}

impl<'de> de::Deserializer<'de> for Number {
    type Error = Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let bits = self.bits;
        match self.kind {
            Kind::Bool => visitor.visit_bool(bits != 0),
            Kind::F32 => visitor.visit_f32(f32::from_bits(bits as u32)),
            Kind::F64 => visitor.visit_f64(f64::from_bits(bits)),
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 if (bits as i64) < 0 => {
                visitor.visit_i64(bits as i64)
            }
            // MessagePack writes an integer that is not negative as an unsigned one.
            Kind::U8 | Kind::I8 => visitor.visit_u8(bits as u8),
            Kind::U16 | Kind::I16 => visitor.visit_u16(bits as u16),
            Kind::U32 | Kind::I32 => visitor.visit_u32(bits as u32),
            Kind::U64 | Kind::I64 => visitor.visit_u64(bits),
        }
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(self)
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The number of an enum's variant.
impl<'de> de::EnumAccess<'de> for Number {
    type Error = Error;
    type Variant = UnitOnly;

    #[inline]
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, UnitOnly)> {
        Ok((seed.deserialize(self)?, UnitOnly))
    }
}

/// A variant without a value.
struct UnitOnly;

fn no_value<T>(wanted: &'static str) -> Result<T> {
    Err(Error::invalid_type(Unexpected::UnitVariant, &wanted))
}

impl<'de> de::VariantAccess<'de> for UnitOnly {
    type Error = Error;

    #[inline]
    fn unit_variant(self) -> Result<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _seed: T) -> Result<T::Value> {
        no_value("newtype variant")
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, _visitor: V) -> Result<V::Value> {
        no_value("tuple variant")
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value> {
        no_value("struct variant")
    }
}
