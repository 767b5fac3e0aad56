//! The types of an array's elements. This file has the `unsafe` code for `bool`.

use bytemuck::Pod;

/// An element of an [`Array`](crate::Array): an integer, a float or `bool`.
///
/// Programs can't implement it.
///
/// # Examples
/// ```
/// # use fiber_values as fiber;
/// use fiber::{Array, Element};
///
/// fn count<T: Element + PartialEq>(of: T, among: &Array<T>) -> usize {
///     among.iter().filter(|element| **element == of).count()
/// }
/// assert_eq!(count(true, &Array::from([true, false, true])), 2);
/// ```
pub trait Element:
    Copy + Send + Sync + serde::Serialize + serde::de::DeserializeOwned + 'static + sealed::Sealed
{
}

pub(super) mod sealed {
    /// The conversions between elements and bytes.
    pub trait Sealed: Sized {
        const ZERO: Self;
        /// The type's byte on the wire.
        const TYPE: u8;

        fn as_bytes(elements: &[Self]) -> &[u8];
        /// Returns the bytes for writing bytes of valid elements.
        fn as_bytes_mut(elements: &mut [Self]) -> &mut [u8];
        /// Returns zeroes, which are aligned, as elements.
        fn from_zeroes(bytes: &mut [u8]) -> &mut [Self];
        /// Returns whether the bytes are valid elements, as far as single bytes show it.
        fn are_valid(bytes: &[u8]) -> bool;
        /// Returns the elements of aligned bytes for which `are_valid` is true.
        fn from_valid(bytes: &[u8]) -> &[Self];
    }
}

/// Returns the name of the type with this byte on the wire.
pub(super) fn name(byte: u8) -> &'static str {
    NAMES.get(usize::from(byte)).copied().unwrap_or("an unknown type")
}

macro_rules! numbers {
    ($($type:ident)*) => {
        const NAMES: &[&str] = &["bool", $(stringify!($type)),*];

        #[allow(non_camel_case_types)]
        enum Type { bool, $($type),* }

        $(impl Element for $type {}

        impl sealed::Sealed for $type {
            const ZERO: $type = 0 as $type;
            const TYPE: u8 = Type::$type as u8;

            fn as_bytes(elements: &[$type]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }

            fn as_bytes_mut(elements: &mut [$type]) -> &mut [u8] {
                bytemuck::cast_slice_mut(elements)
            }

            fn from_zeroes(bytes: &mut [u8]) -> &mut [$type] {
                cast_mut(bytes)
            }

            fn are_valid(_: &[u8]) -> bool {
                true
            }

            #[inline]
            fn from_valid(bytes: &[u8]) -> &[$type] {
                // A vector without elements has no aligned address of its own in `Bytes`.
                if bytes.is_empty() { &[] } else { bytemuck::cast_slice(bytes) }
            }
        })*
    };
}

fn cast_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

numbers!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64);

impl Element for bool {}

#[allow(unsafe_code)]
impl sealed::Sealed for bool {
    const ZERO: bool = false;
    const TYPE: u8 = Type::bool as u8;

    fn as_bytes(elements: &[bool]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn as_bytes_mut(elements: &mut [bool]) -> &mut [u8] {
        // SAFETY: `bool` has the size of a byte; the caller writes valid elements only.
        unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), elements.len()) }
    }

    fn from_zeroes(bytes: &mut [u8]) -> &mut [bool] {
        assert!(Self::are_valid(bytes), "zeroes are `false`");
        // SAFETY: all bytes are 0 or 1, and no one else can write while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    fn are_valid(bytes: &[u8]) -> bool {
        bytes.iter().fold(0, |all, byte| all | byte) <= 1
    }

    fn from_valid(bytes: &[u8]) -> &[bool] {
        // SAFETY: `are_valid` was true for these bytes, and the bytes of a blob never change.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }
}
