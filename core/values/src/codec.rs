//! The encoding of values: MessagePack by rmp-serde, with structs as maps.
//!
//! Maps cost some bytes compared to arrays, and keep `#[serde(skip_serializing_if)]`, `flatten` and
//! `default` correct. A value is encoded as `rmp_serde::Serializer::with_struct_map` encodes it,
//! with two exceptions.
//!
//! **Options.** MessagePack has one nil, so in rmp-serde `Some(None)` and `Some(())` become `None`.
//! Here `Some` writes the byte 0xc1, which MessagePack reserves, before a value that begins with
//! nil or with 0xc1. `None` is `c0`, `Some(None)` is `c1 c0`, `Some(Some(None))` is `c1 c1 c0`, and
//! `Some(5)` stays `05`. The rule looks at encoded bytes, so it covers every type that is encoded
//! as nil, also inside newtypes and untagged enums. It costs one comparison for each `Some`.
//!
//! **Packed runs.** A sequence of 16 or more numbers or `bool`s (`Vec<f64>`, `VecDeque<u8>` …) is
//! the byte 0xc1, MessagePack's marker of the numbers' type (0xc3 for `bool`), their number as a
//! big-endian `u32`, and the numbers, little-endian. Integers have the width that the largest one
//! of them needs: a `Vec<u64>` of values below 256 is a run of `u8`. No value of another kind has
//! one of these markers behind 0xc1, and `Some` writes none before a run. Types see a sequence:
//! a run reads as a list of anything that a number reads as. Only what serializes by
//! `Serializer::collect_seq` is packed, with an iterator of known length over numbers: vectors,
//! slices and collections; not tuples and arrays, nor newtypes of numbers.
//!
//! **Pieces.** Where large arrays are kept apart, so are texts, byte strings and packed runs of
//! 32 KiB or more, if shared memory has room: 0xc1, MessagePack's marker of a long one (0xdb, 0xc6,
//! 0xdd), the kind of a run, and the number of the blob as a big-endian `u32`. They are copied once
//! into the blob and once out of it. A reader sees no difference, but for the lifetime of what it
//! borrows.
//!
//! **Deep values.** A value of 64 or more levels begins with 0xc1 0xdf: its reader needs a large
//! stack.
//!
//! **Values as blobs.** An encoding that is to stay where it was made is a blob itself, the last of
//! the value's. The byte 0xc1 alone stands for it.
//!
//! **Division of labour.** [`encode()`] writes the structure of values itself and leaves scalars,
//! texts, bytes and extensions to rmp-serde. [`decode()`] reads by itself, because rmp-serde's
//! deserializer does not show its position; 128-bit numbers are rmp-serde's. Errors are rmp-serde's
//! on both sides.
//!
//! **Limits.** Values nest up to 1,023 levels. A sequence, map, text or byte string has fewer than
//! 2³² elements or bytes. Bytes that remain after a value are an error. A length in a message
//! reserves no more memory than the rest of the message can fill.

mod decode;
mod deep;
mod encode;
mod encoded_value;
mod packed;
#[cfg(test)]
mod tests;

use std::any::type_name;
use std::mem::needs_drop;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::encoded_value::EncodedValue;
use crate::blob::{Blobs, scope};
use crate::kept_memory;
use fiber_core::{Error, Result};

/// Appends `value` to `out`.
///
/// # Errors
/// [`Error::Encode`] with serde's message if the value can't be serialized. `out` may then hold a
/// part of it.
pub fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<()> {
    scope::together(|| append_value(out, value))
}

/// Appends `value` to `out`, and returns its blobs: the large arrays, texts and lists of numbers in
/// it, whose bytes are not in `out`.
///
/// # Errors
/// As [`append`].
#[inline]
pub fn append_apart<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<Blobs> {
    let (appended, blobs) = scope::apart(|| append_value(out, value));
    appended.map(|()| blobs)
}

/// As [`append_apart`], with bytes and blobs that depend on the value alone: only arrays have
/// blobs, and shared memory is not used.
///
/// # Errors
/// As [`append`].
pub fn append_alone<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<Blobs> {
    let (appended, blobs) = scope::alone(|| append_value(out, value));
    appended.map(|()| blobs)
}

/// As [`append_apart`], and faster for small values. The value owns all that is encoded of it: it
/// has no references.
///
/// # Errors
/// As [`append`].
#[inline]
pub fn append_owned_apart<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<Blobs> {
    // A value that owns an array has something to drop. The scope would take as long as the
    // encoding of a number.
    if needs_drop::<T>() {
        append_apart(out, value)
    } else {
        append_value(out, value).map(|()| Blobs::default())
    }
}

#[inline]
fn append_value<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<()> {
    let at = out.len();
    let mut serializer = encode::Serializer::new(out);
    let written = value.serialize(&mut serializer);
    if serializer.is_deep() {
        deep::mark(out, at);
    }
    kept_memory::note(out.len());
    written.map_err(|error| Error::Encode { type_name: type_name::<T>(), cause: Arc::new(error) })
}

/// Encodes `value` into a new buffer.
///
/// # Errors
/// As [`append`].
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    append(&mut out, value)?;
    Ok(out)
}

/// Decodes a value that was encoded with these blobs.
///
/// # Errors
/// As [`decode`].
#[inline]
pub fn decode_with<T: DeserializeOwned>(bytes: &[u8], blobs: &Blobs) -> Result<T> {
    let bytes = encoded_value::behind(bytes, blobs);
    scope::within(blobs, || decode(bytes))
}

/// Decodes a value.
///
/// # Errors
/// [`Error::Decode`] with serde's message and the expected type; also if bytes remain after the
/// value.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    kept_memory::note(bytes.len());
    let mut deserializer = decode::Deserializer::new(bytes);
    // Types that nest without end own boxes or collections.
    let read = if needs_drop::<T>() && bytes.starts_with(&deep::MARK) {
        read_deep(&mut deserializer)
    } else {
        T::deserialize(&mut deserializer)
    };
    match read {
        Ok(value) if deserializer.is_at_end() => Ok(value),
        read => Err(failed(type_name::<T>(), read.err(), deserializer.left())),
    }
}

#[cold]
#[inline(never)]
fn read_deep<T: DeserializeOwned>(
    deserializer: &mut decode::Deserializer<'_>,
) -> Result<T, rmp_serde::decode::Error> {
    let mut read = None;
    deep::on_a_large_stack(&mut || read = Some(T::deserialize(&mut *deserializer)));
    read.expect("it was read on the other stack")
}

/// Explains why a value of a type can't be decoded: by an error, or because bytes are left.
#[cold]
fn failed(what: &'static str, error: Option<rmp_serde::decode::Error>, left: usize) -> Error {
    match error {
        None => Error::decode(what, format!("{left} bytes are left after the value")),
        Some(error) => Error::decode(what, error),
    }
}

/// Checks the size of an encoded message against a limit; both are in bytes. `what` describes the
/// message for the error.
///
/// # Errors
/// [`Error::TooLarge`].
#[inline]
pub fn check_size(size: usize, limit: u64, what: impl FnOnce() -> String) -> Result<()> {
    let size = size as u64;
    if size <= limit { Ok(()) } else { Err(Error::TooLarge { what: what(), size, limit }) }
}

/// Nil: `None`, or a unit.
const NIL: u8 = 0xc0;

/// Marks `Some` around a value that begins with nil or with this mark, and a packed run.
const SOME: u8 = 0xc1;

/// MessagePack's extension type, in the form that rmp-serde recognizes.
#[derive(Serialize)]
#[serde(rename = "_ExtStruct")]
struct Extension<'a>((i8, &'a serde_bytes::Bytes));
