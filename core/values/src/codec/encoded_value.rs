//! A value that has been encoded already.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::decode::alone::alone;
use super::{append_apart, decode_with};
use crate::array::Array;
use crate::blob::{Blob, Blobs, arena};
use fiber_core::Result;

/// An encoded value: its bytes, and its blobs.
///
/// It can be part of another value. The other value's encoding has the bytes, and its blobs are
/// among those of the other value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedValue {
    /// The value without its large arrays.
    pub bytes: Bytes,
    /// The large arrays.
    pub blobs: Blobs,
}

/// The encoding of a value whose encoding is its last blob.
const IN_BLOB: u8 = 0xc1;

/// Returns the encoding of a value, which may be its last blob.
#[inline]
pub(super) fn behind<'a>(bytes: &'a [u8], blobs: &'a Blobs) -> &'a [u8] {
    match (bytes, blobs.last()) {
        ([IN_BLOB], Some(encoding)) => encoding,
        _ => bytes,
    }
}

impl EncodedValue {
    /// Encodes a value.
    ///
    /// # Errors
    /// As [`append`](super::append).
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<EncodedValue> {
        let mut bytes = Vec::new();
        let blobs = append_apart(&mut bytes, value)?;
        Ok(EncodedValue { bytes: bytes.into(), blobs })
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// As [`decode`](super::decode).
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        decode_with(&self.bytes, &self.blobs)
    }

    /// Returns the value in the form that depends on the value alone: as
    /// [`append_alone`](super::append_alone) encodes it. One that can't be read stays as it is.
    #[must_use]
    pub fn alone(&self) -> EncodedValue {
        if self.blobs.is_empty() {
            return self.clone();
        }
        let value = self.unpacked();
        alone(&value).unwrap_or(value)
    }

    /// Moves the encoding to a blob in shared memory, if that has room.
    pub fn move_to_blob(bytes: &mut Vec<u8>, blobs: &mut Blobs) {
        if let Some(blob) = arena::copy_of(bytes) {
            let value = EncodedValue::in_blob(blob, blobs);
            (*bytes, *blobs) = (value.bytes.into(), value.blobs);
        }
    }

    /// Returns the value whose encoding is in a blob, and has these blobs.
    pub(crate) fn in_blob(encoding: Blob, blobs: &Blobs) -> EncodedValue {
        let blobs: Vec<_> = blobs.iter().cloned().chain([encoding]).collect();
        EncodedValue { bytes: Bytes::from_static(&[IN_BLOB]), blobs: blobs.into() }
    }

    /// Returns the value with its encoding in `bytes`.
    fn unpacked(&self) -> EncodedValue {
        match self.blobs.split_last() {
            Some((encoding, others)) if *self.bytes == [IN_BLOB] => {
                EncodedValue { bytes: encoding.to_bytes(), blobs: others.to_vec().into() }
            }
            _ => self.clone(),
        }
    }

    /// Returns the length in bytes, with the blobs.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.blobs.total_len()
    }

    /// Returns the bytes that it keeps in this process's own memory.
    pub fn private_len(&self) -> usize {
        self.bytes.len() + self.blobs.private_len()
    }
}

impl Serialize for EncodedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = serde_bytes::Bytes::new(&self.bytes);
        let arrays: Vec<_> = self.blobs.iter().cloned().map(Array::<u8>::new).collect();
        (bytes, arrays).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EncodedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EncodedValue, D::Error> {
        let (bytes, arrays): (serde_bytes::ByteBuf, Vec<Array<u8>>) =
            Deserialize::deserialize(deserializer)?;
        let blobs: Vec<Blob> = arrays.into_iter().map(Array::into_blob).collect();
        Ok(EncodedValue { bytes: bytes.into_vec().into(), blobs: blobs.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::MIN_LEN;

    #[test]
    fn an_encoded_value_within_another_passes_its_blobs_on() {
        let array = Array::from(vec![7_u8; MIN_LEN]);
        let inner = EncodedValue::new(&("a", array.clone())).unwrap();
        let outer = EncodedValue::new(&(array.clone(), Some(inner.clone()), 5)).unwrap();
        assert_eq!(outer.blobs.len(), 2);
        assert!(outer.bytes.len() < 100);
        // A reference has nothing to drop, unlike what it refers to.
        assert_eq!(EncodedValue::new(&Some(&array)).unwrap().blobs.len(), 1);
        let (first, read, number): (Array<u8>, Option<EncodedValue>, u8) = outer.decode().unwrap();
        assert_eq!((first, read.as_ref(), number), (array.clone(), Some(&inner), 5));
        let (text, last): (String, Array<u8>) = read.unwrap().decode().unwrap();
        assert_eq!((text.as_str(), last), ("a", array));
    }

    #[test]
    fn an_encoding_may_be_a_blob() {
        arena::enable(true);
        let value = ("a".to_string(), Array::from(vec![7_u8; MIN_LEN]), vec![1_u32; 100]);
        let EncodedValue { bytes, mut blobs } = EncodedValue::new(&value).unwrap();
        let mut moved = bytes.to_vec();
        EncodedValue::move_to_blob(&mut moved, &mut blobs);
        assert_eq!((&moved[..], &blobs.last().unwrap()[..]), (&[IN_BLOB][..], &bytes[..]));
        let moved = EncodedValue { bytes: moved.into(), blobs };
        assert_eq!(moved.decode::<(String, Array<u8>, Vec<u32>)>().unwrap(), value);
        assert_eq!(moved.alone(), EncodedValue::new(&value).unwrap().alone());
        assert_eq!(moved.unpacked().unpacked(), EncodedValue::new(&value).unwrap());
    }
}
