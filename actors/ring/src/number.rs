//! The numbers that collectives work on.

use bytemuck::{Pod, cast_slice};

/// A number that collectives work on: `f32`, `f64`, `i32`, `i64` or `u8`.
///
/// Programs cannot implement it.
pub trait Number: Pod + PartialOrd + Send + sealed::Sealed {}

/// The type of a number. The discriminant is its byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NumberType {
    F32 = 1,
    F64,
    I32,
    I64,
    U8,
}

impl NumberType {
    pub(super) fn name(byte: u8) -> &'static str {
        ["?", "f32", "f64", "i32", "i64", "u8"].get(usize::from(byte)).copied().unwrap_or("?")
    }
}

pub(super) mod sealed {
    use super::NumberType;

    /// The arithmetic that collectives need.
    pub trait Sealed: Copy {
        const TYPE: NumberType;
        /// Whether a mean is computed from a sum of type `i64`.
        const WIDENS: bool;

        fn plus(self, other: Self) -> Self;
        fn times(self, other: Self) -> Self;
        fn over(self, count: usize) -> Self;
        fn widened(self) -> i64;
        fn narrowed(wide: i64) -> Self;
    }
}

macro_rules! float {
    ($type:ty, $variant:ident) => {
        impl Number for $type {}

        impl sealed::Sealed for $type {
            const TYPE: NumberType = NumberType::$variant;
            const WIDENS: bool = false;

            #[inline(always)]
            fn plus(self, other: $type) -> $type {
                self + other
            }

            #[inline(always)]
            fn times(self, other: $type) -> $type {
                self * other
            }

            fn over(self, count: usize) -> $type {
                self / count as $type
            }

            fn widened(self) -> i64 {
                unreachable!("only the sums of integers are widened")
            }

            fn narrowed(_: i64) -> $type {
                unreachable!("only the sums of integers are widened")
            }
        }
    };
}

macro_rules! integer {
    ($type:ty, $variant:ident, $widens:expr) => {
        impl Number for $type {}

        impl sealed::Sealed for $type {
            const TYPE: NumberType = NumberType::$variant;
            const WIDENS: bool = $widens;

            #[inline(always)]
            fn plus(self, other: $type) -> $type {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn times(self, other: $type) -> $type {
                self.wrapping_mul(other)
            }

            fn over(self, count: usize) -> $type {
                self / count as $type
            }

            fn widened(self) -> i64 {
                i64::from(self)
            }

            fn narrowed(wide: i64) -> $type {
                wide as $type
            }
        }
    };
}

float!(f32, F32);
float!(f64, F64);
integer!(i32, I32, true);
integer!(i64, I64, false);
integer!(u8, U8, true);

/// Returns the elements as bytes, as they travel. All nodes run one build on one architecture.
pub(super) fn bytes<T: Number>(elements: &[T]) -> &[u8] {
    cast_slice(elements)
}

/// Returns the range of `length` elements that belongs to `rank`. The elements are divided evenly;
/// each of the first `length % size` ranks has one more.
pub(super) fn segment(length: usize, size: usize, rank: usize) -> std::ops::Range<usize> {
    let (each, more) = (length / size, length % size);
    let start = rank * each + rank.min(more);
    start..start + each + usize::from(rank < more)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn segments_are_adjacent_and_differ_in_length_by_at_most_one(
            length in 0usize..10_000,
            size in 1usize..50,
        ) {
            let mut next = 0;
            for rank in 0..size {
                let segment = segment(length, size, rank);
                prop_assert_eq!(segment.start, next);
                prop_assert!(segment.len() == length / size || segment.len() == length / size + 1);
                next = segment.end;
            }
            prop_assert_eq!(next, length);
        }
    }
}
