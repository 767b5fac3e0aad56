//! A value that has been encoded already.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{append_apart, decode_with};
use crate::array::Array;
use crate::blob::{Blob, Blobs};
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

    /// Returns the length in bytes, with the blobs.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.blobs.total_len()
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
}
