//! Reads a packed run as a vector of numbers at once. Serde's own visitor of vectors takes one
//! element after the other: a nanosecond for each, and so for each byte of a `Vec<u8>`.

use std::any::type_name;
use std::fmt::{self, Display, Formatter};

use castaway::cast;
use serde::de::{self, Deserialize, Visitor};
use serde::forward_to_deserialize_any;

use super::packed::Run;
use crate::codec::packed::Kind;

/// Returns the run's numbers, if `V` is serde's visitor of a vector of such numbers. The visitor
/// would return the same.
#[inline]
pub(super) fn vector<'de, V: Visitor<'de>>(run: &Run<'_>) -> Option<V::Value> {
    macro_rules! try_each {
        ($($number:ident)*) => {
            $(
                let mut value: Option<V::Value> = None;
                if let Ok(vector) = cast!(&mut value, &mut Option<Vec<$number>>) {
                    // A user's visitor may change the numbers that it gets.
                    if type_name::<V>() == name_of_visitor::<Vec<$number>>() {
                        *vector = <$number as Number>::vector(run);
                    }
                    return value;
                }
            )*
        };
    }
    try_each!(u8 f64 f32 i32 i64 u32 u64 usize i8 i16 u16 isize bool);
    None
}

/// A type of which vectors are read at once.
trait Number: Sized {
    /// Returns the numbers, if each of them is a `Self` for certain.
    fn vector(run: &Run<'_>) -> Option<Vec<Self>>;
}

macro_rules! numbers {
    ($($number:ident: $($kind:ident $narrow:ident)+;)*) => {
        $(impl Number for $number {
            fn vector(run: &Run<'_>) -> Option<Vec<$number>> {
                match run.kind {
                    $(Kind::$kind if size_of::<$narrow>() <= size_of::<$number>() => {
                        let (numbers, _) = run.bytes.as_chunks();
                        let widened = |bytes: &_| $narrow::from_le_bytes(*bytes) as $number;
                        Some(numbers.iter().map(widened).collect())
                    })+
                    _ => None,
                }
            }
        })*
    };
}

numbers! {
    f32: F32 f32;
    f64: F64 f64;
    u8: U8 u8;
    u16: U8 u8 U16 u16;
    u32: U8 u8 U16 u16 U32 u32;
    u64: U8 u8 U16 u16 U32 u32 U64 u64;
    usize: U8 u8 U16 u16 U32 u32 U64 u64;
    i8: I8 i8;
    i16: I8 i8 I16 i16;
    i32: I8 i8 I16 i16 I32 i32;
    i64: I8 i8 I16 i16 I32 i32 I64 i64;
    isize: I8 i8 I16 i16 I32 i32 I64 i64;
}

impl Number for bool {
    fn vector(run: &Run<'_>) -> Option<Vec<bool>> {
        (run.kind == Kind::Bool).then(|| run.bytes.iter().map(|byte| *byte != 0).collect())
    }
}

/// Returns the name of the visitor with which `T` deserializes.
#[inline]
fn name_of_visitor<'de, T: Deserialize<'de>>() -> &'static str {
    T::deserialize(NameOfVisitor).err().map_or("", |name| name.0)
}

/// Returns the visitor's name as an error.
struct NameOfVisitor;

#[derive(Debug)]
struct Name(&'static str);

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Name {}

impl de::Error for Name {
    fn custom<T: Display>(_: T) -> Name {
        Name("")
    }
}

impl<'de> de::Deserializer<'de> for NameOfVisitor {
    type Error = Name;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Name> {
        Err(Name(type_name::<V>()))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}
