//! Reads a packed run as a vector of numbers at once. Serde's own visitor of vectors takes one
//! element after the other: a nanosecond for each, and so for each byte of a `Vec<u8>`.

#![allow(unsafe_code)]

use std::any::{TypeId, type_name};
use std::fmt::{self, Display, Formatter};
use std::marker::PhantomData;
use std::mem::transmute;

use serde::de::{self, Deserialize, Visitor};
use serde::forward_to_deserialize_any;

use super::packed::Run;
use crate::codec::packed::Kind;
use crate::kept_memory::use_huge_pages;

/// Returns the run's numbers, if `V` is serde's visitor of a vector of such numbers. The visitor
/// would return the same.
#[inline]
pub(super) fn vector<'de, V: Visitor<'de>>(run: &Run<'_>) -> Option<V::Value> {
    let mut vector = None::<V::Value>;
    // SAFETY: it is an option of the type with this id.
    unsafe { fill((&raw mut vector).cast(), id::<V::Value>(), type_name::<V>(), run) };
    vector
}

/// Sets `vector` to the run's numbers, if `visitor` is serde's visitor of its type. One copy for
/// all types: each type of a vector that a program receives would have its own.
///
/// # Safety
/// `vector` is a valid pointer to an `Option<T>`, and `id` is the id of `T`.
unsafe fn fill(vector: *mut (), id: TypeId, visitor: &str, run: &Run<'_>) {
    macro_rules! try_each {
        ($($number:ident)*) => {
            $(
                // A user's visitor may change the numbers that it gets.
                if id == TypeId::of::<Vec<$number>>()
                    && visitor == name_of_visitor::<Vec<$number>>()
                {
                    // SAFETY: the ids are equal, so the types are.
                    unsafe { *vector.cast::<Option<Vec<$number>>>() = $number::vector(run) };
                    return;
                }
            )*
        };
    }
    try_each!(u8 f64 f32 i32 i64 u32 u64 usize i8 i16 u16 isize bool);
}

/// Returns the id of a type, which for one that borrows is that of its `'static` form.
pub(in crate::codec) fn id<T>() -> TypeId {
    trait Identified {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }

    impl<T> Identified for PhantomData<T> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }

    let marker: &dyn Identified = &PhantomData::<T>;
    // SAFETY: only the lifetime changes. `id` reads nothing through it.
    unsafe { transmute::<&dyn Identified, &(dyn Identified + 'static)>(marker) }.id()
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
                        let mut vector = with_room(numbers.len());
                        vector.extend(numbers.iter().map(widened));
                        Some(vector)
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

/// Returns an empty vector with room for `len` numbers.
fn with_room<T>(len: usize) -> Vec<T> {
    let mut vector = Vec::with_capacity(len);
    use_huge_pages(vector.spare_capacity_mut());
    vector
}

impl Number for u8 {
    fn vector(run: &Run<'_>) -> Option<Vec<u8>> {
        (run.kind == Kind::U8).then(|| {
            let mut vector = with_room(run.bytes.len());
            vector.extend_from_slice(run.bytes);
            vector
        })
    }
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
