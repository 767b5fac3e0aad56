//! The form of an encoded value that depends on the value alone.
//!
//! Whether large texts and lists of numbers are in blobs depends on the room in shared memory when
//! the value was encoded. The keys of tasks are made of the form in which only arrays have blobs.

use std::ops::Range;

use rmp::encode::{write_bin_len, write_str_len, write_uint};

use super::item::{Behind, Item};
use super::packed::Packed;
use super::{Deserializer, Result, SOME};
use crate::blob::{Blob, scope};
use crate::codec::EncodedValue;

/// Returns the value as [`append_alone`](crate::codec::append_alone) encodes it.
///
/// Blobs have numbers in their order in the encoding. A tuple with the form of an array and the
/// number of the next blob is taken for an array: such a value may have more than one form.
pub(in crate::codec) fn alone(value: &EncodedValue) -> Result<EncodedValue> {
    scope::within(&value.blobs, || {
        let mut reader = Deserializer::new(&value.bytes);
        let mut writer =
            Writer { value, out: Vec::new(), copied: 0, arrays: Vec::new(), pieces: 0 };
        let mut place = Place::Elsewhere;
        while !reader.is_at_end() {
            let at = value.bytes.len() - reader.left();
            let item = reader.item()?;
            let behind = match item {
                Item::Mark => reader.behind_mark()?,
                _ => Behind::Value,
            };
            let range = at..value.bytes.len() - reader.left();
            match behind {
                Behind::Text(text) => {
                    writer.piece(range.clone(), &text, |out, len| drop(write_str_len(out, len)));
                }
                Behind::Bytes(bytes) => {
                    writer.piece(range.clone(), &bytes, |out, len| drop(write_bin_len(out, len)));
                }
                Behind::Run(Packed::Apart(kind, run)) => {
                    writer.piece(range.clone(), &run, |out, len| {
                        out.extend_from_slice(&[SOME, kind as u8]);
                        out.extend_from_slice(&(len / kind.width() as u32).to_be_bytes());
                    });
                }
                Behind::Run(Packed::Here(_)) | Behind::Value => {}
            }
            if place == Place::Elements {
                writer.array(range, &item);
            }
            place = place.next(&item);
        }
        Ok(writer.finish())
    })
}

/// Writes a value with its pieces in their places.
struct Writer<'a> {
    value: &'a EncodedValue,
    out: Vec<u8>,
    /// How many bytes of the value are in `out`, in one form or the other.
    copied: usize,
    arrays: Vec<Blob>,
    pieces: usize,
}

impl Writer<'_> {
    /// Writes a text, a byte string or a list of numbers that is in a blob.
    fn piece(&mut self, range: Range<usize>, bytes: &[u8], header: impl FnOnce(&mut Vec<u8>, u32)) {
        self.copy_until(&range);
        header(&mut self.out, bytes.len() as u32);
        self.out.extend_from_slice(bytes);
        self.pieces += 1;
    }

    /// Writes the number of an array's blob, if this is one.
    fn array(&mut self, range: Range<usize>, item: &Item<'_>) {
        let next = self.arrays.len() + self.pieces;
        if let Item::Unsigned(number) = item
            && *number == next as u64
            && let Some(blob) = self.value.blobs.get(next)
        {
            self.copy_until(&range);
            // Writing to a vector can't fail.
            let _ = write_uint(&mut self.out, self.arrays.len() as u64);
            self.arrays.push(blob.clone());
        }
    }

    fn copy_until(&mut self, range: &Range<usize>) {
        self.out.extend_from_slice(&self.value.bytes[self.copied..range.start]);
        self.copied = range.end;
    }

    fn finish(mut self) -> EncodedValue {
        let end = self.value.bytes.len();
        self.copy_until(&(end..end));
        EncodedValue { bytes: self.out.into(), blobs: self.arrays.into() }
    }
}

/// The place of an item in the encoding of an array: see `array/wire.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Elsewhere,
    Type,
    Shape,
    /// The sizes of so many dimensions follow.
    Sizes(u32),
    Elements,
}

impl Place {
    /// Returns the place of the item after this one.
    fn next(self, item: &Item<'_>) -> Place {
        match (self, item) {
            (Place::Type, Item::Unsigned(_) | Item::Signed(_)) => Place::Shape,
            (Place::Shape, Item::Nil) => Place::Elements,
            (Place::Shape, Item::Array(dimensions)) => Place::Sizes(*dimensions),
            (Place::Sizes(1), Item::Unsigned(_) | Item::Signed(_)) => Place::Elements,
            (Place::Sizes(left @ 2..), Item::Unsigned(_) | Item::Signed(_)) => {
                Place::Sizes(left - 1)
            }
            (_, Item::Array(3)) => Place::Type,
            _ => Place::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;
    use crate::blob::MIN_LEN;
    use crate::codec::append_alone;
    use crate::{Array, codec};

    /// Checks that both encodings have one form.
    #[track_caller]
    fn check<T: Serialize>(value: &T) {
        let mut bytes = Vec::new();
        let blobs = append_alone(&mut bytes, value).unwrap();
        let expected = EncodedValue { bytes: bytes.into(), blobs };
        let apart = EncodedValue::new(value).unwrap();
        assert!(apart.blobs.len() >= expected.blobs.len());
        assert!(apart.alone() == expected, "{} blobs", apart.blobs.len());
        assert!(expected.alone() == expected);
    }

    #[test]
    fn the_form_does_not_depend_on_shared_memory() {
        let array = Array::from(vec![7_u16; MIN_LEN]);
        let matrix = array.clone().reshape(&[2, 1, MIN_LEN / 2]).unwrap();
        let (text, list) = ("é".repeat(MIN_LEN), vec![-70_000_i64; MIN_LEN]);
        let bytes = serde_bytes::ByteBuf::from(vec![1; 3 * MIN_LEN]);
        check(&5);
        check(&text);
        check(&(1, Some(&list), Some(Some(())), -5_i128, "short"));
        check(&(&text, &array, (14_u8, (), 7), &list, Some(&matrix), &bytes, &array));
        check(&vec![("a", 0.5), ("b", 1.5)]);
        let inner = EncodedValue::new(&(&text, &array)).unwrap();
        check(&[Some(inner), None]);
    }

    #[test]
    fn a_malformed_value_stays_as_it_is() {
        let value = codec::EncodedValue::new(&"x".repeat(MIN_LEN)).unwrap();
        let cut = EncodedValue { bytes: value.bytes.slice(..2), ..value };
        assert!(cut.alone() == cut);
    }
}
