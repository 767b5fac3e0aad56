//! The bytes of vectors and slices whose numbers are in memory as they are in a packed run. They are
//! copied once, also into a blob: the loop over other sequences needs the processor for each number,
//! and a buffer that grows.

#![allow(unsafe_code)]

use std::any::TypeId;

use bytemuck::{NoUninit, cast_slice};

use crate::codec::decode::vector::id;
use crate::codec::packed::{Kind, MIN_LEN};

/// Returns the bytes of a packed run with these elements, if they are a vector or a slice of numbers
/// of `kind`, and the largest of them needs its whole width.
#[inline]
pub(super) fn bytes<I>(elements: &I, kind: Kind) -> Option<&[u8]> {
    // SAFETY: the pointer is to a value of the type with this id, and the result borrows it.
    unsafe { of((&raw const *elements).cast(), id::<I>(), kind) }
}

/// One copy for all types: each type that a program sends would have its own.
///
/// # Safety
/// `elements` points to a value of the type that `id` is of, which lives as long as the result.
unsafe fn of<'a>(elements: *const (), id: TypeId, kind: Kind) -> Option<&'a [u8]> {
    macro_rules! try_each {
        ($($number:ident $is_whole:expr;)*) => {{
            $(
                let numbers = if id == TypeId::of::<&Vec<$number>>() {
                    // SAFETY: the ids are equal, so the types are, but for lifetimes.
                    Some(unsafe { *elements.cast::<&Vec<$number>>() }.as_slice())
                } else if id == TypeId::of::<&[$number]>() {
                    // SAFETY: as above.
                    Some(unsafe { *elements.cast::<&[$number]>() })
                } else {
                    None
                };
                if let Some(numbers) = numbers {
                    return plain(numbers, kind, $is_whole);
                }
            )*
        }};
    }
    // Whether the first half of an integer's bits is needed, or its sign in the second half.
    macro_rules! integer {
        ($number:ident) => {
            |numbers| {
                let sign_bits = |number: &$number| number >> ($number::BITS - 1);
                let needed = |all: $number, number: &$number| all | (number ^ sign_bits(number));
                let signs = u32::from($number::MIN != 0);
                numbers.iter().fold(0, needed) >> ($number::BITS / 2 - signs) != 0
            }
        };
    }
    match kind {
        Kind::U8 => try_each!(u8 |_| true;),
        Kind::I8 => try_each!(i8 |_| true;),
        Kind::Bool => try_each!(bool |_| true;),
        Kind::F32 => try_each!(f32 |_| true;),
        Kind::F64 => try_each!(f64 |_| true;),
        Kind::U16 => try_each!(u16 integer!(u16);),
        Kind::I16 => try_each!(i16 integer!(i16);),
        Kind::U32 => try_each!(u32 integer!(u32);),
        Kind::I32 => try_each!(i32 integer!(i32);),
        Kind::U64 => try_each!(u64 integer!(u64); usize integer!(usize);),
        Kind::I64 => try_each!(i64 integer!(i64); isize integer!(isize);),
    }
    None
}

/// The numbers of a block, in which one is sought that needs its whole width.
const BLOCK: usize = 1024;

fn plain<T: NoUninit>(
    numbers: &[T],
    kind: Kind,
    is_whole: impl FnMut(&[T]) -> bool,
) -> Option<&[u8]> {
    let is_little = cfg!(target_endian = "little") || kind.width() == 1;
    let is_plain = is_little && size_of::<T>() == kind.width();
    let fits = is_plain && numbers.len() >= MIN_LEN && numbers.chunks(BLOCK).any(is_whole);
    fits.then(|| cast_slice(numbers))
}
