//! Writing: structure and packed runs here; scalars, texts, bytes and extensions by rmp-serde.

mod bits;
mod packed;
mod plain;

use std::io::Write;

use rmp::encode::{write_array_len, write_map_len};
use rmp_serde::encode::Error;
use serde::ser::{self, Error as _, Serialize};

use self::bits::Bits;
use super::packed::{BYTES_APART, Kind, MIN_LEN, TEXT_APART, is_packed};
use super::{Extension, NIL, SOME, deep};
use crate::blob::scope;

type Result<T = ()> = std::result::Result<T, Error>;

/// A serializer that appends values to a buffer. It writes the bytes of rmp-serde with structs as
/// maps, except for options around nil and for packed runs.
pub(super) struct Serializer<'out> {
    rmp: rmp_serde::Serializer<&'out mut Vec<u8>>,
    /// The levels around what is written next.
    depth: u16,
    is_deep: bool,
}

impl<'out> Serializer<'out> {
    #[inline]
    pub(super) fn new(out: &'out mut Vec<u8>) -> Self {
        Serializer { rmp: rmp_serde::Serializer::new(out), depth: 0, is_deep: false }
    }

    /// Returns whether what was written is to be marked.
    #[inline]
    pub(super) fn is_deep(&self) -> bool {
        self.is_deep
    }

    /// Goes one level deeper, which [`up`](Self::up) ends.
    #[inline]
    fn down(&mut self) -> Result {
        if self.depth >= deep::UNMARKED_LEVELS {
            self.note_depth()?;
        }
        self.depth += 1;
        Ok(())
    }

    #[inline]
    fn up(&mut self) {
        self.depth -= 1;
    }

    #[cold]
    fn note_depth(&mut self) -> Result {
        self.is_deep = true;
        if self.depth < deep::MOST_LEVELS { Ok(()) } else { Err(Error::DepthLimitExceeded) }
    }

    #[inline]
    fn out(&mut self) -> &mut Vec<u8> {
        self.rmp.get_mut()
    }

    #[inline]
    fn position(&self) -> usize {
        self.rmp.get_ref().len()
    }

    /// Writes a text or bytes that are in a blob.
    fn piece(&mut self, mark: u8, blob: u32) -> Result {
        self.out().extend_from_slice(&[SOME, mark]);
        self.out().extend_from_slice(&blob.to_be_bytes());
        Ok(())
    }

    /// Writes the header of an enum's variant that has a value: a map of one entry.
    #[inline]
    fn variant(&mut self, variant: &'static str) -> Result {
        write_map_len(self.out(), 1)?;
        ser::Serializer::serialize_str(&mut self.rmp, variant)
    }

    #[inline]
    fn compound<const KIND: bool>(
        &mut self,
        len: Option<usize>,
    ) -> Result<Compound<'_, 'out, KIND>> {
        self.down()?;
        let (at, declared) = (self.position(), len.unwrap_or(0));
        header::<KIND>(self.out(), declared)?;
        Ok(Compound { serializer: self, at, declared, count: 0 })
    }

    #[cold]
    fn mark_some(&mut self, at: usize) -> Result {
        self.out().insert(at, SOME);
        Ok(())
    }

    /// Turns the tuple `(i8, bytes)` at `at` into MessagePack's extension type, as rmp-serde does.
    #[cold]
    fn make_extension(&mut self, at: usize) -> Result {
        let tuple = self.out().split_off(at);
        let extension = rmp_serde::from_slice(&tuple).map_err(|error| {
            Error::custom(format!("an extension is a tuple of an i8 and bytes: {error}"))
        })?;
        Extension(extension).serialize(&mut self.rmp)
    }
}

/// Converts the length of a sequence, map, text or byte string to MessagePack's 32 bits.
#[inline]
fn length(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| {
        Error::custom(format!("{len} elements or bytes in one piece; at most {} fit", u32::MAX))
    })
}

/// Forwards to rmp-serde.
macro_rules! scalars {
    ($($method:ident($type:ty))*) => {
        $(#[inline]
        fn $method(self, value: $type) -> Result {
            self.rmp.$method(value)
        })*
    };
}

impl<'s, 'out> ser::Serializer for &'s mut Serializer<'out> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Compound<'s, 'out, ARRAY>;
    type SerializeTuple = Compound<'s, 'out, ARRAY>;
    type SerializeTupleStruct = Compound<'s, 'out, ARRAY>;
    type SerializeTupleVariant = Compound<'s, 'out, ARRAY>;
    type SerializeMap = Compound<'s, 'out, MAP>;
    type SerializeStruct = Compound<'s, 'out, MAP>;
    type SerializeStructVariant = Compound<'s, 'out, MAP>;

    scalars! {
        serialize_bool(bool)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_i128(i128) serialize_u128(u128)
        serialize_f32(f32) serialize_f64(f64)
        serialize_char(char)
    }

    #[inline]
    fn serialize_str(self, text: &str) -> Result {
        length(text.len())?;
        match scope::add_copy(text.as_bytes()) {
            Some(number) => self.piece(TEXT_APART, number),
            None => self.rmp.serialize_str(text),
        }
    }

    #[inline]
    fn serialize_bytes(self, bytes: &[u8]) -> Result {
        length(bytes.len())?;
        match scope::add_copy(bytes) {
            Some(number) => self.piece(BYTES_APART, number),
            None => self.rmp.serialize_bytes(bytes),
        }
    }

    #[inline]
    fn serialize_none(self) -> Result {
        self.rmp.serialize_none()
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        let at = self.position();
        value.serialize(&mut *self)?;
        match self.rmp.get_ref()[at..] {
            [SOME, next, ..] if is_packed(next) => Ok(()),
            [NIL | SOME, ..] => self.mark_some(at),
            _ => Ok(()),
        }
    }

    #[inline]
    fn serialize_unit(self) -> Result {
        self.rmp.serialize_unit()
    }

    #[inline]
    fn serialize_unit_struct(self, name: &'static str) -> Result {
        self.rmp.serialize_unit_struct(name)
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result {
        self.rmp.serialize_unit_variant(name, index, variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result {
        if name != rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            return value.serialize(self);
        }
        let at = self.position();
        scope::together(|| value.serialize(&mut *self))?;
        self.make_extension(at)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result {
        self.variant(variant)?;
        self.down()?;
        value.serialize(&mut *self)?;
        self.up();
        Ok(())
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Compound<'s, 'out, ARRAY>> {
        self.compound::<ARRAY>(len)
    }

    /// Writes a sequence: a packed run if there are many elements and all are numbers.
    #[inline]
    fn collect_seq<I>(self, elements: I) -> Result
    where
        I: IntoIterator<Item: Serialize>,
    {
        let kind = Kind::of::<I::Item>();
        if let Some(kind) = kind
            && let Some(bytes) = plain::bytes(&elements, kind)
        {
            return packed::write_plain(self.out(), kind, bytes);
        }
        let mut elements = elements.into_iter();
        let (len, most) = elements.size_hint();
        let known = (most == Some(len)).then_some(len);
        let mut first = None;
        if len >= MIN_LEN
            && known.is_some()
            && let Some(kind) = kind
        {
            first = elements.next();
            if let Some((found, bits)) = first.as_ref().and_then(|it| it.serialize(Bits).ok())
                && found == kind
            {
                self.down()?;
                packed::write(self.out(), kind, len, bits, elements)?;
                self.up();
                return Ok(());
            }
        }
        let mut sequence = self.compound::<ARRAY>(known)?;
        first.iter().try_for_each(|element| sequence.element(element))?;
        elements.try_for_each(|element| sequence.element(&element))?;
        sequence.finish()
    }

    #[inline]
    fn serialize_tuple(self, len: usize) -> Result<Compound<'s, 'out, ARRAY>> {
        self.compound::<ARRAY>(Some(len))
    }

    #[inline]
    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        len: usize,
    ) -> Result<Compound<'s, 'out, ARRAY>> {
        self.compound::<ARRAY>(Some(len))
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Compound<'s, 'out, ARRAY>> {
        self.variant(variant)?;
        self.compound::<ARRAY>(Some(len))
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Compound<'s, 'out, MAP>> {
        self.compound::<MAP>(len)
    }

    #[inline]
    fn serialize_struct(self, _name: &'static str, len: usize) -> Result<Compound<'s, 'out, MAP>> {
        self.compound::<MAP>(Some(len))
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Compound<'s, 'out, MAP>> {
        self.variant(variant)?;
        self.compound::<MAP>(Some(len))
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
}

const ARRAY: bool = false;
const MAP: bool = true;

/// The size of a marker with a length of 32 bits.
const LONGEST_HEADER: usize = 5;

/// Writes the header of an array or a map.
#[inline]
fn header<const KIND: bool>(out: &mut impl Write, len: usize) -> Result {
    let len = length(len)?;
    let written = if KIND == MAP { write_map_len(out, len) } else { write_array_len(out, len) };
    written.map(drop).map_err(Error::from)
}

/// An array or map that is being written. Its header has the length that the type declared. `end`
/// corrects the header if the number of elements differs.
pub(super) struct Compound<'s, 'out, const KIND: bool> {
    serializer: &'s mut Serializer<'out>,
    at: usize,
    declared: usize,
    count: usize,
}

impl<const KIND: bool> Compound<'_, '_, KIND> {
    #[inline]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.count += 1;
        value.serialize(&mut *self.serializer)
    }

    #[inline]
    fn field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result {
        self.count += 1;
        ser::Serializer::serialize_str(&mut self.serializer.rmp, key)?;
        value.serialize(&mut *self.serializer)
    }

    #[inline]
    fn finish(self) -> Result {
        self.serializer.up();
        if self.count == self.declared { Ok(()) } else { self.correct() }
    }

    #[cold]
    fn correct(self) -> Result {
        let header = |len| {
            let mut bytes = [0; LONGEST_HEADER];
            let mut unused = &mut bytes[..];
            header::<KIND>(&mut unused, len)?;
            let used = LONGEST_HEADER - unused.len();
            Ok::<_, Error>(bytes.into_iter().take(used))
        };
        let (wrong, right) = (header(self.declared)?, header(self.count)?);
        self.serializer.out().splice(self.at..self.at + wrong.len(), right);
        Ok(())
    }
}

macro_rules! arrays {
    ($($trait:ident $method:ident)*) => {
        $(impl ser::$trait for Compound<'_, '_, ARRAY> {
            type Ok = ();
            type Error = Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
                self.element(value)
            }

            #[inline]
            fn end(self) -> Result {
                self.finish()
            }
        })*
    };
}

arrays! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

macro_rules! structs {
    ($($trait:ident)*) => {
        $(impl ser::$trait for Compound<'_, '_, MAP> {
            type Ok = ();
            type Error = Error;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result {
                self.field(key, value)
            }

            #[inline]
            fn end(self) -> Result {
                self.finish()
            }
        })*
    };
}

structs! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for Compound<'_, '_, MAP> {
    type Ok = ();
    type Error = Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result {
        self.element(key)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        value.serialize(&mut *self.serializer)
    }

    #[inline]
    fn end(self) -> Result {
        self.finish()
    }
}
