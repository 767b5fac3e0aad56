//! What collectives work on: slices of numbers, and how two of them become one.

use bytemuck::{Pod, cast_slice, pod_read_unaligned};
use serde::{Deserialize, Serialize};

/// A number that collectives can work on: `f32`, `f64`, `i32`, `i64` or `u8`.
pub trait Number: Pod + PartialOrd + Send + sealed::Sealed {}

/// How the values of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reduction {
    /// Their sum. Integers wrap around.
    Sum,
    /// Their product. Integers wrap around.
    Product,
    /// The least of them. If some are not a number, it is not told which is taken, but it is the
    /// same everywhere.
    Min,
    /// The greatest of them. If some are not a number, it is not told which is taken, but it is the
    /// same everywhere.
    Max,
    /// Their sum, divided by the number of ranks. `i32` and `u8` are added up as `i64`; integers
    /// are rounded towards zero.
    Mean,
}

impl Reduction {
    pub(super) fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Product => "product",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::Mean => "mean",
        }
    }

    pub(super) const ALL: [Reduction; 5] =
        [Reduction::Sum, Reduction::Product, Reduction::Min, Reduction::Max, Reduction::Mean];
}

/// Which type of element, as it travels.
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
    pub(super) fn name(kind: u8) -> &'static str {
        ["?", "f32", "f64", "i32", "i64", "u8"].get(usize::from(kind)).copied().unwrap_or("?")
    }
}

pub(super) mod sealed {
    use super::NumberType;

    /// What makes an element.
    pub trait Sealed: Copy {
        const KIND: NumberType;
        /// Whether a mean is made of a wider sum.
        const WIDENS: bool;

        fn plus(self, other: Self) -> Self;
        fn times(self, other: Self) -> Self;
        fn over(self, count: usize) -> Self;
        fn widened(self) -> i64;
        fn narrowed(wide: i64) -> Self;
    }
}

macro_rules! float {
    ($type:ty, $kind:ident) => {
        impl Number for $type {}

        impl sealed::Sealed for $type {
            const KIND: NumberType = NumberType::$kind;
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
    ($type:ty, $kind:ident, $widens:expr) => {
        impl Number for $type {}

        impl sealed::Sealed for $type {
            const KIND: NumberType = NumberType::$kind;
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

/// Puts what came from another rank, as bytes, into `own`. There are as many elements in both.
pub(super) fn combine<T: Number>(how: Reduction, own: &mut [T], incoming: &[u8]) {
    match how {
        Reduction::Sum | Reduction::Mean => each(own, incoming, T::plus),
        Reduction::Product => each(own, incoming, T::times),
        Reduction::Min => each(own, incoming, |own, other| if other < own { other } else { own }),
        Reduction::Max => each(own, incoming, |own, other| if other > own { other } else { own }),
    }
}

#[inline(always)]
fn each<T: Number>(own: &mut [T], incoming: &[u8], join: impl Fn(T, T) -> T) {
    // What arrives lies anywhere, but mostly where elements of its type may lie.
    if let Ok(incoming) = bytemuck::try_cast_slice::<u8, T>(incoming) {
        own.iter_mut().zip(incoming).for_each(|(own, other)| *own = join(*own, *other));
    } else {
        let incoming = incoming.chunks_exact(size_of::<T>());
        own.iter_mut()
            .zip(incoming)
            .for_each(|(own, other)| *own = join(*own, pod_read_unaligned(other)));
    }
}

/// QueueStream as the bytes that travel. All nodes run one build, on one kind of machine.
pub(super) fn bytes<T: Number>(elements: &[T]) -> &[u8] {
    cast_slice(elements)
}

/// The elements that a rank has of `length`, which are divided as evenly as can be: the first ranks
/// have one more.
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
        fn segments_follow_each_other_and_differ_by_one_at_most(length in 0usize..10_000, size in 1usize..50) {
            let mut next = 0;
            for rank in 0..size {
                let segment = segment(length, size, rank);
                prop_assert_eq!(segment.start, next);
                prop_assert!(segment.len() == length / size || segment.len() == length / size + 1);
                next = segment.end;
            }
            prop_assert_eq!(next, length);
        }

        #[test]
        fn it_does_not_matter_where_the_bytes_lie(values: Vec<(i32, i32)>, shift in 0usize..8) {
            let (own, other): (Vec<i32>, Vec<i32>) = values.into_iter().unzip();
            let mut shifted = vec![0; shift];
            shifted.extend_from_slice(bytes(&other));
            let mut sums = own.clone();
            combine(Reduction::Sum, &mut sums, &shifted[shift..]);
            let expected: Vec<i32> = own.iter().zip(&other).map(|(a, b)| a.wrapping_add(*b)).collect();
            prop_assert_eq!(sums, expected);
        }
    }
}
