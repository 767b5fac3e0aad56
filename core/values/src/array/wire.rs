//! The encoding of arrays: a tuple of the element's type, the shape (nil for one dimension), and
//! the elements: their bytes, or the number of the blob that has them. Human-readable formats, such
//! as JSON, get the type's name and the elements one by one.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Array, Element, element};
use crate::blob::{self, Blob, scope};

impl<T: Element> Serialize for Array<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = self.shape.as_deref();
        if serializer.is_human_readable() {
            return (element::name(T::TYPE), shape, &**self).serialize(serializer);
        }
        let apart = if self.blob.len() < blob::MIN_LEN {
            None
        } else {
            let blob = || self.blob.clone();
            scope::add(|| if scope::is_alone() { blob() } else { blob().into_shared() })
        };
        let mut tuple = serializer.serialize_tuple(3)?;
        tuple.serialize_element(&T::TYPE)?;
        tuple.serialize_element(&shape)?;
        match apart {
            Some(number) => tuple.serialize_element(&number)?,
            None => tuple.serialize_element(serde_bytes::Bytes::new(&self.blob))?,
        }
        tuple.end()
    }
}

impl<'de, T: Element> Deserialize<'de> for Array<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Array<T>, D::Error> {
        deserializer.deserialize_tuple(3, ArrayVisitor(PhantomData))
    }
}

struct ArrayVisitor<T>(PhantomData<T>);

impl<'de, T: Element> Visitor<'de> for ArrayVisitor<T> {
    type Value = Array<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of `{}`", std::any::type_name::<T>())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Array<T>, A::Error> {
        let missing = || A::Error::custom("the array is incomplete");
        let TypeName(name) = parts.next_element()?.ok_or_else(missing)?;
        let own = element::name(T::TYPE);
        if name != own {
            let problem = format!("an array of `{name}` can't be read as one of `{own}`");
            return Err(A::Error::custom(problem));
        }
        let shape: Option<Vec<usize>> = parts.next_element()?.ok_or_else(missing)?;
        let array = match parts.next_element()?.ok_or_else(missing)? {
            Elements::Bytes(blob) => Array::from_blob(blob).map_err(A::Error::custom)?,
            Elements::OneByOne(elements) => Array::from(elements),
        };
        match shape {
            None => Ok(array),
            Some(shape) => array.reshape(&shape).map_err(A::Error::custom),
        }
    }
}

/// The name of an element's type, or its byte.
struct TypeName(String);

impl<'de> Deserialize<'de> for TypeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TypeName, D::Error> {
        struct NameVisitor;

        impl Visitor<'_> for NameVisitor {
            type Value = TypeName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the type of an array's elements")
            }

            fn visit_u64<E: serde::de::Error>(self, byte: u64) -> Result<TypeName, E> {
                Ok(TypeName(element::name(u8::try_from(byte).unwrap_or(u8::MAX)).to_string()))
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<TypeName, E> {
                Ok(TypeName(name.to_string()))
            }
        }

        // Serde's buffer for untagged enums and flattened fields says that it is human-readable,
        // whatever it was filled from.
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(NameVisitor)
        } else {
            deserializer.deserialize_u8(NameVisitor)
        }
    }
}

/// The elements of an array.
enum Elements<T> {
    Bytes(Blob),
    OneByOne(Vec<T>),
}

impl<'de, T: Element> Deserialize<'de> for Elements<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Elements<T>, D::Error> {
        let one_by_one = deserializer.is_human_readable();
        let visitor = ElementsVisitor { one_by_one, elements: PhantomData };
        // Formats that can't say what follows have no blobs.
        if one_by_one || scope::any() {
            deserializer.deserialize_any(visitor)
        } else {
            deserializer.deserialize_bytes(visitor)
        }
    }
}

struct ElementsVisitor<T> {
    /// Whether a sequence has elements, and not bytes.
    one_by_one: bool,
    elements: PhantomData<T>,
}

impl<'de, T: Element> Visitor<'de> for ElementsVisitor<T> {
    type Value = Elements<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the elements of an array")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Elements<T>, E> {
        let blob = u32::try_from(number).ok().and_then(scope::take);
        blob.map(Elements::Bytes).ok_or_else(|| {
            E::custom(format!("the array's blob {number} did not come with the value"))
        })
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Elements<T>, E> {
        Ok(Elements::Bytes(Blob::private(Bytes::copy_from_slice(bytes))))
    }

    fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Elements<T>, E> {
        Ok(Elements::Bytes(Blob::private(bytes.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Elements<T>, A::Error> {
        if self.one_by_one {
            let mut elements = Vec::new();
            while let Some(element) = sequence.next_element()? {
                elements.push(element);
            }
            return Ok(Elements::OneByOne(elements));
        }
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(Elements::Bytes(Blob::private(bytes.into())))
    }
}
