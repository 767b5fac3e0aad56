//! Reading: structure, texts and numbers here, i128 and extensions by rmp-serde.

mod access;
mod packed;
mod vector;

use std::io::ErrorKind;

use rmp::Marker;
use rmp_serde::decode::{Error, ReadRefReader};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Error as _, Visitor};

use self::access::{ExtensionAccess, QueueStream, Variant};
use self::packed::{Packed, Run};
use self::vector::vector;
use super::packed::{BYTES_APART, Kind, RUN_APART, TEXT_APART, is_packed};
use super::{NIL, SOME};
use crate::blob::{Blob, scope};

/// The marker of an array without elements: a unit struct.
const NO_ELEMENTS: u8 = Marker::FixArray(0).to_u8();

/// The marker of a map of one entry: an enum's variant and its value.
const ONE_ENTRY: u8 = Marker::FixMap(1).to_u8();

type Result<T> = std::result::Result<T, Error>;

/// Limit of nesting, as in rmp-serde: a hostile value can't overflow the stack.
const DEPTH: u16 = 1024;

/// Reads values from a slice. Texts and bytes are borrowed from it.
pub(super) struct Deserializer<'de> {
    rest: &'de [u8],
    depth: u16,
}

impl<'de> Deserializer<'de> {
    #[inline]
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        Deserializer { rest: bytes, depth: DEPTH }
    }

    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns how many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    #[inline]
    fn marker(&mut self) -> Result<Marker> {
        self.array().map(|&[byte]| Marker::from_u8(byte))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<&'de [u8; N]> {
        let Some((array, rest)) = self.rest.split_first_chunk() else { return Err(truncated()) };
        self.rest = rest;
        Ok(array)
    }

    #[inline]
    fn bytes(&mut self, len: usize) -> Result<&'de [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else { return Err(truncated()) };
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads the length in a header.
    #[inline]
    fn len(&mut self, marker: Marker) -> Result<u32> {
        // The most frequent ones are handled before the jump table.
        if let Marker::FixStr(len) | Marker::FixArray(len) | Marker::FixMap(len) = marker {
            return Ok(len.into());
        }
        Ok(match marker {
            Marker::FixExt1 => 1,
            Marker::FixExt2 => 2,
            Marker::FixExt4 => 4,
            Marker::FixExt8 => 8,
            Marker::FixExt16 => 16,
            Marker::Str8 | Marker::Bin8 | Marker::Ext8 => u8::from_be_bytes(*self.array()?).into(),
            Marker::Str16 | Marker::Bin16 | Marker::Ext16 | Marker::Array16 | Marker::Map16 => {
                u16::from_be_bytes(*self.array()?).into()
            }
            Marker::Str32 | Marker::Bin32 | Marker::Ext32 | Marker::Array32 | Marker::Map32 => {
                u32::from_be_bytes(*self.array()?)
            }
            other => return Err(Error::TypeMismatch(other)),
        })
    }

    /// Reads a number of 128 bits through rmp-serde, which writes it as 16 bytes.
    fn wide(&mut self) -> rmp_serde::Deserializer<ReadRefReader<'de, [u8]>> {
        let (number, rest) = self.rest.split_at((2 + size_of::<i128>()).min(self.rest.len()));
        self.rest = rest;
        rmp_serde::Deserializer::from_read_ref(number)
    }

    /// Reads an extension. Types see it as the tuple of its number and its bytes.
    fn extension(&mut self, marker: Marker) -> Result<SeqAccessDeserializer<ExtensionAccess<'de>>> {
        let len = self.len(marker)?;
        let number = i8::from_be_bytes(*self.array()?);
        let bytes = self.bytes(len as usize)?;
        Ok(SeqAccessDeserializer::new(ExtensionAccess { number: Some(number), bytes: Some(bytes) }))
    }

    /// Returns the byte behind the mark, if a packed run or a piece follows.
    #[inline]
    fn peek_packed(&self) -> Option<u8> {
        match self.rest {
            [SOME, next, ..] if is_packed(*next) => Some(*next),
            _ => None,
        }
    }

    /// Reads a packed run behind its mark, or returns `None` if something else follows.
    fn run(&mut self) -> Result<Option<Packed<'de>>> {
        if self.peek() == Some(RUN_APART) {
            let [_mark, kind] = *self.array()?;
            let kind = Kind::from_byte(kind).ok_or_else(malformed)?;
            let blob = self.blob()?;
            return if blob.len() % kind.width() == 0 {
                Ok(Some(Packed::Apart(kind, blob)))
            } else {
                Err(malformed())
            };
        }
        let Some(kind) = self.peek().and_then(Kind::from_byte) else { return Ok(None) };
        let [_kind, len @ ..]: [u8; 5] = *self.array()?;
        let bytes = kind.width().checked_mul(u32::from_be_bytes(len) as usize);
        Ok(Some(Packed::Here(Run { kind, bytes: self.bytes(bytes.ok_or_else(truncated)?)? })))
    }

    /// Reads the number of a blob, and returns the blob.
    fn blob(&mut self) -> Result<Blob> {
        let number = u32::from_be_bytes(*self.array()?);
        scope::take(number)
            .ok_or_else(|| Error::custom(format!("blob {number} did not come with the value")))
    }

    /// Reads what follows a mark.
    fn marked<V: Visitor<'de>>(&mut self, visitor: V, binary: Binary) -> Result<V::Value> {
        if let Some(packed) = self.run()? {
            return self.nested(|_| packed.run().visit(visitor));
        }
        match self.peek() {
            Some(TEXT_APART) => {
                self.rest = &self.rest[1..];
                visitor.visit_str(std::str::from_utf8(&self.blob()?)?)
            }
            Some(BYTES_APART) => {
                self.rest = &self.rest[1..];
                let blob = self.blob()?;
                match binary {
                    Binary::Bytes => visitor.visit_bytes(&blob),
                    Binary::Numbers => Run { kind: Kind::U8, bytes: &blob }.visit(visitor),
                }
            }
            _ => self.nested(|inner| visitor.visit_some(inner)),
        }
    }

    /// Reads one level deeper.
    #[inline]
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == 1 {
            return Err(Error::DepthLimitExceeded);
        }
        self.depth -= 1;
        let value = read(self);
        self.depth += 1;
        value
    }

    fn number<V: Visitor<'de>>(&mut self, marker: Marker, visitor: V) -> Result<V::Value> {
        match marker {
            Marker::FixPos(number) => visitor.visit_u8(number),
            Marker::FixNeg(number) => visitor.visit_i8(number),
            Marker::U8 => visitor.visit_u8(u8::from_be_bytes(*self.array()?)),
            Marker::U16 => visitor.visit_u16(u16::from_be_bytes(*self.array()?)),
            Marker::U32 => visitor.visit_u32(u32::from_be_bytes(*self.array()?)),
            Marker::U64 => visitor.visit_u64(u64::from_be_bytes(*self.array()?)),
            Marker::I8 => visitor.visit_i8(i8::from_be_bytes(*self.array()?)),
            Marker::I16 => visitor.visit_i16(i16::from_be_bytes(*self.array()?)),
            Marker::I32 => visitor.visit_i32(i32::from_be_bytes(*self.array()?)),
            Marker::I64 => visitor.visit_i64(i64::from_be_bytes(*self.array()?)),
            Marker::F32 => visitor.visit_f32(f32::from_be_bytes(*self.array()?)),
            Marker::F64 => visitor.visit_f64(f64::from_be_bytes(*self.array()?)),
            Marker::True | Marker::False => visitor.visit_bool(marker == Marker::True),
            Marker::Null => visitor.visit_unit(),
            other => Err(Error::TypeMismatch(other)),
        }
    }

    fn any<V: Visitor<'de>>(&mut self, visitor: V, binary: Binary) -> Result<V::Value> {
        let marker = self.marker()?;
        match marker {
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                let len = self.len(marker)?;
                visitor.visit_borrowed_str(std::str::from_utf8(self.bytes(len as usize)?)?)
            }
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
                let len = self.len(marker)?;
                self.nested(|inner| {
                    let mut elements = QueueStream { of: inner, left: len };
                    let value = visitor.visit_seq(&mut elements)?;
                    elements.end(len, value)
                })
            }
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
                let len = self.len(marker)?;
                self.nested(|inner| {
                    let mut entries = QueueStream { of: inner, left: len };
                    let value = visitor.visit_map(&mut entries)?;
                    entries.end(len, value)
                })
            }
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                let len = self.len(marker)?;
                let bytes = self.bytes(len as usize)?;
                match binary {
                    Binary::Bytes => visitor.visit_borrowed_bytes(bytes),
                    Binary::Numbers => Run { kind: Kind::U8, bytes }.visit(visitor),
                }
            }
            Marker::FixExt1
            | Marker::FixExt2
            | Marker::FixExt4
            | Marker::FixExt8
            | Marker::FixExt16
            | Marker::Ext8
            | Marker::Ext16
            | Marker::Ext32 => visitor.visit_newtype_struct(self.extension(marker)?),
            Marker::Reserved => self.marked(visitor, binary),
            _ => self.number(marker, visitor),
        }
    }
}

/// The form in which a type gets a byte string.
enum Binary {
    Bytes,
    /// A sequence, for a type that asks for one.
    Numbers,
}

#[cold]
fn malformed() -> Error {
    Error::custom("a list of numbers is malformed")
}

#[cold]
fn truncated() -> Error {
    Error::InvalidDataRead(ErrorKind::UnexpectedEof.into())
}

/// Reads numbers, the most frequent form of each ahead of the jump table.
macro_rules! numbers {
    (integers: $($method:ident)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            let marker = self.marker()?;
            if let Marker::FixPos(number) = marker {
                return visitor.visit_u8(number);
            }
            self.number(marker, visitor)
        })*
    };
    (floats: $($method:ident $marker:ident $visit:ident $type:ident)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            let marker = self.marker()?;
            if marker == Marker::$marker {
                return visitor.$visit($type::from_be_bytes(*self.array()?));
            }
            self.number(marker, visitor)
        })*
    };
}

/// Reads texts, short ones ahead of the jump table.
macro_rules! texts {
    ($($method:ident)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            if let Some(Marker::FixStr(len)) = self.peek().map(Marker::from_u8) {
                let text = &self.bytes(1 + usize::from(len))?[1..];
                return visitor.visit_borrowed_str(std::str::from_utf8(text)?);
            }
            self.any(visitor, Binary::Bytes)
        })*
    };
}

macro_rules! any {
    ($binary:ident: $($method:ident($($type:ty),*))*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, $(_: $type,)* visitor: V) -> Result<V::Value> {
            self.any(visitor, Binary::$binary)
        })*
    };
}

impl<'de> de::Deserializer<'de> for &mut Deserializer<'de> {
    type Error = Error;

    numbers! { integers:
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    numbers! { floats:
        deserialize_f32 F32 visit_f32 f32
        deserialize_f64 F64 visit_f64 f64
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let marker = self.marker()?;
        self.number(marker, visitor)
    }

    any! { Bytes:
        deserialize_any() deserialize_char() deserialize_str() deserialize_bytes()
        deserialize_byte_buf() deserialize_unit() deserialize_map() deserialize_ignored_any()
    }

    texts! { deserialize_string deserialize_identifier }

    any! { Numbers:
        deserialize_tuple(usize) deserialize_tuple_struct(&'static str, usize)
        deserialize_struct(&'static str, &'static [&'static str])
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.peek_packed().is_some() {
            self.rest = &self.rest[1..];
            if let Some(packed) = self.run()? {
                let run = packed.run();
                return self.nested(|_| match vector::<V>(&run) {
                    Some(vector) => Ok(vector),
                    None => run.visit(visitor),
                });
            }
            return self.marked(visitor, Binary::Numbers);
        }
        self.any(visitor, Binary::Numbers)
    }

    #[inline]
    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.wide().deserialize_i128(visitor)
    }

    #[inline]
    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.wide().deserialize_u128(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(NIL) => {
                self.rest = &self.rest[1..];
                visitor.visit_none()
            }
            Some(SOME) if self.peek_packed().is_none() => {
                self.rest = &self.rest[1..];
                self.nested(|inner| visitor.visit_some(inner))
            }
            _ => visitor.visit_some(self),
        }
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        if self.peek() == Some(NO_ELEMENTS) {
            self.rest = &self.rest[1..];
            return visitor.visit_unit();
        }
        self.any(visitor, Binary::Bytes)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        if name == rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            let marker = self.marker()?;
            return visitor.visit_newtype_struct(self.extension(marker)?);
        }
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let valued = self.peek() == Some(ONE_ENTRY);
        if valued {
            self.rest = &self.rest[1..];
        }
        visitor.visit_enum(Variant { of: self, valued })
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
}
