//! Reading: structure, texts and numbers here, i128 and extensions by rmp-serde.
//!
//! A value's type calls a method of [`Deserializer`] with a visitor, and each type has its own copy
//! of that method. So what does not depend on the type is one step for all, [`Deserializer::item`],
//! and a method has only the arms that its types can meet.

mod access;
pub(super) mod alone;
mod item;
mod packed;
pub(super) mod vector;

use std::io::ErrorKind;

use rmp::Marker;
use rmp_serde::decode::{Error, ReadRefReader};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Error as _, Visitor};

use self::access::{Elements, ExtensionAccess, Variant};
use self::item::{Behind, Header, Item, Name, Sign};
use self::packed::{Packed, Run};
use self::vector::vector;
use super::packed::{BYTES_APART, Kind, RUN_APART, TEXT_APART, is_packed};
use super::{NIL, SOME, deep};
use crate::blob::{Blob, scope};

/// The marker of an array without elements: a unit struct.
const NO_ELEMENTS: u8 = Marker::FixArray(0).to_u8();

/// The marker of a map of one entry: an enum's variant and its value.
const ONE_ENTRY: u8 = Marker::FixMap(1).to_u8();

type Result<T> = std::result::Result<T, Error>;

/// Reads values from a slice. Texts and bytes are borrowed from it.
pub(super) struct Deserializer<'de> {
    rest: &'de [u8],
    /// The levels that are left.
    depth: u16,
}

impl<'de> Deserializer<'de> {
    #[inline]
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        let rest = bytes.strip_prefix(&deep::MARK).unwrap_or(bytes);
        Deserializer { rest, depth: deep::MOST_LEVELS }
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
    fn extension(&mut self, marker: Marker) -> Result<ExtensionAccess<'de>> {
        let len = self.len(marker)?;
        let number = i8::from_be_bytes(*self.array()?);
        let bytes = self.bytes(len as usize)?;
        Ok(ExtensionAccess { number: Some(number), bytes: Some(bytes) })
    }

    /// Returns the byte behind the mark, if a packed run or a piece follows.
    #[inline]
    fn peek_packed(&self) -> Option<u8> {
        match self.rest {
            [SOME, next, ..] if is_packed(*next) => Some(*next),
            _ => None,
        }
    }

    /// Returns whether a packed run or bytes follow.
    #[inline]
    fn begins_packed(&self) -> bool {
        match self.peek().map(Marker::from_u8) {
            Some(Marker::Bin8 | Marker::Bin16 | Marker::Bin32) => true,
            Some(_) => self.peek_packed().is_some_and(|next| next != TEXT_APART),
            None => false,
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

    /// Reads what is behind a mark: a packed run, a piece, or nothing if `Some`'s value follows.
    fn behind_mark(&mut self) -> Result<Behind<'de>> {
        if let Some(packed) = self.run()? {
            return Ok(Behind::Run(packed));
        }
        let piece = match self.peek() {
            Some(TEXT_APART) => Behind::Text,
            Some(BYTES_APART) => Behind::Bytes,
            _ => return Ok(Behind::Value),
        };
        self.rest = &self.rest[1..];
        Ok(piece(self.blob()?))
    }

    /// Goes one level deeper, which [`up`](Self::up) ends.
    #[inline]
    fn down(&mut self) -> Result<()> {
        if self.depth == 0 {
            return Err(Error::DepthLimitExceeded);
        }
        self.depth -= 1;
        Ok(())
    }

    #[inline]
    fn up(&mut self) {
        self.depth += 1;
    }

    /// Reads a value's first item: all of it, the header of an array or a map, or a mark.
    fn item(&mut self) -> Result<Item<'de>> {
        let marker = self.marker()?;
        Ok(match marker {
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                let len = self.len(marker)?;
                Item::Text(std::str::from_utf8(self.bytes(len as usize)?)?)
            }
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
                Item::Array(self.len(marker)?)
            }
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => Item::Map(self.len(marker)?),
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                let len = self.len(marker)?;
                Item::Bytes(self.bytes(len as usize)?)
            }
            Marker::FixExt1
            | Marker::FixExt2
            | Marker::FixExt4
            | Marker::FixExt8
            | Marker::FixExt16
            | Marker::Ext8
            | Marker::Ext16
            | Marker::Ext32 => Item::Extension(self.extension(marker)?),
            Marker::Reserved => Item::Mark,
            _ => self.scalar(marker)?,
        })
    }

    /// Reads the rest of a number; a bool and nil are in their markers.
    fn scalar(&mut self, marker: Marker) -> Result<Item<'de>> {
        Ok(match marker {
            Marker::FixPos(number) => Item::Unsigned(number.into()),
            Marker::FixNeg(number) => Item::Signed(number.into()),
            Marker::U8 => Item::Unsigned(u8::from_be_bytes(*self.array()?).into()),
            Marker::U16 => Item::Unsigned(u16::from_be_bytes(*self.array()?).into()),
            Marker::U32 => Item::Unsigned(u32::from_be_bytes(*self.array()?).into()),
            Marker::U64 => Item::Unsigned(u64::from_be_bytes(*self.array()?)),
            Marker::I8 => Item::Signed(i8::from_be_bytes(*self.array()?).into()),
            Marker::I16 => Item::Signed(i16::from_be_bytes(*self.array()?).into()),
            Marker::I32 => Item::Signed(i32::from_be_bytes(*self.array()?).into()),
            Marker::I64 => Item::Signed(i64::from_be_bytes(*self.array()?)),
            Marker::F32 => Item::F32(f32::from_be_bytes(*self.array()?)),
            Marker::F64 => Item::F64(f64::from_be_bytes(*self.array()?)),
            Marker::True | Marker::False => Item::Bool(marker == Marker::True),
            Marker::Null => Item::Nil,
            other => return Err(Error::TypeMismatch(other)),
        })
    }

    /// Reads an integer, and returns its bits. Reads nothing if something else follows.
    #[inline]
    fn integer(&mut self) -> (Sign, u64) {
        match self.peek() {
            Some(number @ ..=0x7f) => {
                self.rest = &self.rest[1..];
                (Sign::Unsigned, number.into())
            }
            _ => self.longer_integer(),
        }
    }

    #[inline(never)]
    fn longer_integer(&mut self) -> (Sign, u64) {
        macro_rules! read {
            ($rest:ident $sign:ident $number:ident as $wide:ident) => {{
                let Some((number, rest)) = $rest.split_first_chunk() else {
                    return (Sign::None, 0);
                };
                self.rest = rest;
                (Sign::$sign, $number::from_be_bytes(*number) as $wide as u64)
            }};
        }
        let Some((marker, rest)) = self.rest.split_first() else { return (Sign::None, 0) };
        match Marker::from_u8(*marker) {
            Marker::U8 => read!(rest Unsigned u8 as u64),
            Marker::U16 => read!(rest Unsigned u16 as u64),
            Marker::U32 => read!(rest Unsigned u32 as u64),
            Marker::U64 => read!(rest Unsigned u64 as u64),
            Marker::I8 => read!(rest Signed i8 as i64),
            Marker::I16 => read!(rest Signed i16 as i64),
            Marker::I32 => read!(rest Signed i32 as i64),
            Marker::I64 => read!(rest Signed i64 as i64),
            Marker::FixNeg(number) => {
                self.rest = rest;
                (Sign::Signed, i64::from(number) as u64)
            }
            _ => (Sign::None, 0),
        }
    }

    /// Reads the header of a short array or map. Reads nothing if something else follows.
    #[inline]
    fn short_header(&mut self) -> Option<Header> {
        let byte = self.peek()?;
        let header = match Marker::from_u8(byte) {
            Marker::FixArray(len) => Header::Array(len.into()),
            Marker::FixMap(len) => Header::Map(len.into()),
            _ => return None,
        };
        self.rest = &self.rest[1..];
        Some(header)
    }

    /// Reads the header of an array or a map. Reads nothing if something else follows.
    #[inline]
    fn header(&mut self) -> Header {
        match self.short_header() {
            Some(header) => header,
            None => self.longer_header(),
        }
    }

    #[inline(never)]
    fn longer_header(&mut self) -> Header {
        let before = self.rest;
        match self.item() {
            Ok(Item::Array(len)) => Header::Array(len),
            Ok(Item::Map(len)) => Header::Map(len),
            _ => {
                self.rest = before;
                Header::None
            }
        }
    }

    /// The error for a type that can't be made from what follows.
    #[cold]
    fn mismatch(&mut self, expected: &dyn de::Expected) -> Error {
        match self.item() {
            Ok(item) => self.unexpected(item, expected),
            Err(error) => error,
        }
    }

    /// The error for a type that can't be made from what was read.
    #[cold]
    fn unexpected(&mut self, item: Item<'de>, expected: &dyn de::Expected) -> Error {
        let behind = match item {
            Item::Mark => self.behind_mark(),
            _ => Ok(Behind::Value),
        };
        behind.map_or_else(|error| error, |behind| item.unexpected(&behind, expected))
    }

    #[inline]
    fn elements<V: Visitor<'de>>(&mut self, len: u32, visitor: V) -> Result<V::Value> {
        let mut elements = Elements::begin(self, len)?;
        let value = visitor.visit_seq(&mut elements);
        elements.end(len, value)
    }

    #[inline]
    fn entries<V: Visitor<'de>>(&mut self, len: u32, visitor: V) -> Result<V::Value> {
        let mut entries = Elements::begin(self, len)?;
        let value = visitor.visit_map(&mut entries);
        entries.end(len, value)
    }

    /// Reads the numbers of a packed run, which counts as a level.
    #[inline]
    fn numbers<V: Visitor<'de>>(&mut self, run: Run<'_>, visitor: V) -> Result<V::Value> {
        self.down()?;
        let value = run.visit(visitor)?;
        self.up();
        Ok(value)
    }

    #[inline]
    fn some<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        self.down()?;
        let value = visitor.visit_some(&mut *self)?;
        self.up();
        Ok(value)
    }

    /// Reads a value of any type.
    fn any<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.item()? {
            Item::Text(text) => visitor.visit_borrowed_str(text),
            Item::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Item::Array(len) => self.elements(len, visitor),
            Item::Map(len) => self.entries(len, visitor),
            Item::Extension(extension) => {
                visitor.visit_newtype_struct(SeqAccessDeserializer::new(extension))
            }
            Item::Unsigned(number) => visitor.visit_u64(number),
            Item::Signed(number) => visitor.visit_i64(number),
            Item::F32(number) => visitor.visit_f32(number),
            Item::F64(number) => visitor.visit_f64(number),
            Item::Bool(value) => visitor.visit_bool(value),
            Item::Nil => visitor.visit_unit(),
            Item::Mark => match self.behind_mark()? {
                Behind::Run(packed) => self.numbers(packed.run(), visitor),
                Behind::Text(blob) => visitor.visit_str(std::str::from_utf8(&blob)?),
                Behind::Bytes(blob) => visitor.visit_bytes(&blob),
                Behind::Value => self.some(visitor),
            },
        }
    }

    /// Reads a list: of elements, of numbers, or of bytes.
    fn list<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.header() {
            Header::Array(len) => self.elements(len, visitor),
            Header::Map(_) => Err(Item::Map(0).unexpected(&Behind::Value, &visitor)),
            Header::None => {
                let packed = self.packed(&visitor)?;
                self.numbers(packed.run(), visitor)
            }
        }
    }

    /// Reads a packed run, or bytes as one.
    fn packed(&mut self, expected: &dyn de::Expected) -> Result<Packed<'de>> {
        match self.item()? {
            Item::Bytes(bytes) => Ok(Packed::Here(Run { kind: Kind::U8, bytes })),
            Item::Mark => match self.behind_mark()? {
                Behind::Run(packed) => Ok(packed),
                Behind::Bytes(blob) => Ok(Packed::Apart(Kind::U8, blob)),
                other => Err(Item::Mark.unexpected(&other, expected)),
            },
            other => Err(self.unexpected(other, expected)),
        }
    }

    /// Reads a map or a struct, which is always written as one.
    fn map<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.header() {
            Header::Map(len) => self.entries(len, visitor),
            Header::Array(_) => Err(Item::Array(0).unexpected(&Behind::Value, &visitor)),
            Header::None => Err(self.mismatch(&visitor)),
        }
    }

    /// Reads a text, or bytes, which may be a text.
    fn text<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.item()? {
            Item::Text(text) => visitor.visit_borrowed_str(text),
            Item::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Item::Mark => match self.behind_mark()? {
                Behind::Text(blob) => visitor.visit_str(std::str::from_utf8(&blob)?),
                Behind::Bytes(blob) => visitor.visit_bytes(&blob),
                other => Err(Item::Mark.unexpected(&other, &visitor)),
            },
            other => Err(self.unexpected(other, &visitor)),
        }
    }

    /// Reads the name of a field or a variant, or its number. Short names are handled before the
    /// jump table.
    #[inline]
    fn name(&mut self, expected: &dyn de::Expected) -> Result<Name<'de>> {
        if let Some(Marker::FixStr(len)) = self.peek().map(Marker::from_u8) {
            let text = &self.bytes(1 + usize::from(len))?[1..];
            return Ok(Name::Text(std::str::from_utf8(text)?));
        }
        self.longer_name(expected)
    }

    #[inline(never)]
    fn longer_name(&mut self, expected: &dyn de::Expected) -> Result<Name<'de>> {
        match self.item()? {
            Item::Text(text) => Ok(Name::Text(text)),
            Item::Bytes(bytes) => Ok(Name::Text(std::str::from_utf8(bytes)?)),
            Item::Unsigned(number) => Ok(Name::Number(number)),
            other => Err(self.unexpected(other, expected)),
        }
    }

    fn float<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.item()? {
            Item::F64(number) => visitor.visit_f64(number),
            Item::F32(number) => visitor.visit_f32(number),
            Item::Unsigned(number) => visitor.visit_u64(number),
            Item::Signed(number) => visitor.visit_i64(number),
            other => Err(self.unexpected(other, &visitor)),
        }
    }

    fn unit<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        if self.peek() != Some(NIL) {
            return Err(self.mismatch(&visitor));
        }
        self.rest = &self.rest[1..];
        visitor.visit_unit()
    }
}

#[cold]
fn malformed() -> Error {
    Error::custom("a list of numbers is malformed")
}

#[cold]
fn truncated() -> Error {
    Error::InvalidDataRead(ErrorKind::UnexpectedEof.into())
}

macro_rules! integers {
    ($($method:ident)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.integer() {
                (Sign::Unsigned, bits) => visitor.visit_u64(bits),
                (Sign::Signed, bits) => visitor.visit_i64(bits as i64),
                (Sign::None, _) => Err(self.mismatch(&visitor)),
            }
        })*
    };
}

/// Reads floats, which may have been written as integers.
macro_rules! floats {
    ($($method:ident $marker:ident $visit:ident $type:ident)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            if self.peek() == Some(Marker::$marker.to_u8()) {
                self.rest = &self.rest[1..];
                return visitor.$visit($type::from_be_bytes(*self.array()?));
            }
            self.float(visitor)
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
            self.text(visitor)
        })*
    };
}

macro_rules! forward {
    ($($method:ident($($type:ty),*) $to:ident;)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, $(_: $type,)* visitor: V) -> Result<V::Value> {
            self.$to(visitor)
        })*
    };
}

impl<'de> de::Deserializer<'de> for &mut Deserializer<'de> {
    type Error = Error;

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u16 deserialize_u32 deserialize_u64
    }

    /// A visitor may know `visit_u8` alone, as formats without types of their own call it.
    #[inline]
    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.integer() {
            (Sign::Unsigned, bits @ ..=0xff) => visitor.visit_u8(bits as u8),
            (Sign::Unsigned, bits) => visitor.visit_u64(bits),
            (Sign::Signed, bits) => visitor.visit_i64(bits as i64),
            (Sign::None, _) => Err(self.mismatch(&visitor)),
        }
    }

    floats! {
        deserialize_f32 F32 visit_f32 f32
        deserialize_f64 F64 visit_f64 f64
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek().map(Marker::from_u8) {
            Some(marker @ (Marker::True | Marker::False)) => {
                self.rest = &self.rest[1..];
                visitor.visit_bool(marker == Marker::True)
            }
            _ => Err(self.mismatch(&visitor)),
        }
    }

    texts! { deserialize_char deserialize_str deserialize_string }

    #[inline]
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.name(&visitor)? {
            Name::Text(text) => visitor.visit_borrowed_str(text),
            Name::Number(number) => visitor.visit_u64(number),
        }
    }

    forward! {
        deserialize_any() any;
        deserialize_ignored_any() any;
        deserialize_bytes() any;
        deserialize_byte_buf() any;
        deserialize_unit() unit;
        deserialize_tuple(usize) list;
        deserialize_tuple_struct(&'static str, usize) list;
        deserialize_map() map;
        deserialize_struct(&'static str, &'static [&'static str]) map;
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if !self.begins_packed() {
            return self.list(visitor);
        }
        let packed = self.packed(&visitor)?;
        match vector::<V>(&packed.run()) {
            Some(vector) => Ok(vector),
            None => self.numbers(packed.run(), visitor),
        }
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
                self.some(visitor)
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
        self.unit(visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        if name == rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            let marker = self.marker()?;
            let extension = SeqAccessDeserializer::new(self.extension(marker)?);
            return visitor.visit_newtype_struct(extension);
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
