//! Access to the parts of a value: elements, entries, variants.

use rmp_serde::decode::Error;
use serde::Deserialize;
use serde::de::value::{BorrowedBytesDeserializer, I8Deserializer};
use serde::de::{self, DeserializeSeed, Error as _, Unexpected, Visitor};

use super::{Deserializer, Result};

/// The elements of an array, or the entries of a map.
pub(super) struct Elements<'a, 'de> {
    of: &'a mut Deserializer<'de>,
    left: u32,
}

impl<'a, 'de> Elements<'a, 'de> {
    /// Begins to read them, one level deeper.
    #[inline]
    pub(super) fn begin(of: &'a mut Deserializer<'de>, len: u32) -> Result<Self> {
        of.down()?;
        Ok(Elements { of, left: len })
    }

    #[inline]
    fn next(&mut self) -> bool {
        let more = self.left > 0;
        self.left -= u32::from(more);
        more
    }

    /// Ends the level. Its `len` elements must have been read for `value`.
    #[inline]
    pub(super) fn end<T>(self, len: u32, value: Result<T>) -> Result<T> {
        self.of.up();
        match self.left {
            left if left > 0 && value.is_ok() => Err(Error::LengthMismatch(len - left)),
            _ => value,
        }
    }

    /// Returns the length that the sender claims, but at most the number of bytes that are left: an
    /// element takes at least one.
    #[inline]
    fn bound(&self) -> Option<usize> {
        Some(self.of.rest.len().min(self.left as usize))
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if self.next() { seed.deserialize(&mut *self.of).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.bound()
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.next() { seed.deserialize(&mut *self.of).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        seed.deserialize(&mut *self.of)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.bound()
    }
}

/// An enum's variant: its name, or a map from it to its value.
pub(super) struct Variant<'a, 'de> {
    pub(super) of: &'a mut Deserializer<'de>,
    pub(super) valued: bool,
}

impl Variant<'_, '_> {
    #[inline]
    fn expect_value(&self, wanted: &'static str) -> Result<()> {
        if self.valued {
            Ok(())
        } else {
            Err(Error::invalid_type(Unexpected::UnitVariant, &wanted))
        }
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    #[inline]
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        Ok((seed.deserialize(&mut *self.of)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    #[inline]
    fn unit_variant(self) -> Result<()> {
        if self.valued { Deserialize::deserialize(self.of) } else { Ok(()) }
    }

    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        self.expect_value("newtype variant")?;
        self.of.down()?;
        let value = seed.deserialize(&mut *self.of)?;
        self.of.up();
        Ok(value)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value> {
        self.expect_value("tuple variant")?;
        self.of.list(visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.expect_value("struct variant")?;
        self.of.map(visitor)
    }
}

/// An extension as the tuple of its number and its bytes.
pub(super) struct ExtensionAccess<'de> {
    pub(super) number: Option<i8>,
    pub(super) bytes: Option<&'de [u8]>,
}

impl<'de> de::SeqAccess<'de> for ExtensionAccess<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if let Some(number) = self.number.take() {
            return seed.deserialize(I8Deserializer::new(number)).map(Some);
        }
        self.bytes
            .take()
            .map(|bytes| seed.deserialize(BorrowedBytesDeserializer::new(bytes)))
            .transpose()
    }
}
