//! Reductions: how the values of several ranks become one.

use bytemuck::pod_read_unaligned;
use serde::{Deserialize, Serialize};

use super::number::Number;

/// The operation that combines the values of all ranks into one, element by element.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Reduction, Ring, RingNode};
///
/// fn greatest(mut node: RingNode) -> fiber::Result<i64> {
///     let mut data = [node.rank() as i64];
///     node.all_reduce(&mut data, Reduction::Max)?;
///     Ok(data[0])
/// }
///
/// assert_eq!(Ring::builder().size(3).try_run(greatest, ()).wait()?, [2, 2, 2]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reduction {
    /// The sum. Integers wrap around.
    Sum,
    /// The product. Integers wrap around.
    Product,
    /// The least value. If some values are NaN, the result is unspecified, but the same on all
    /// ranks.
    Min,
    /// The greatest value. If some values are NaN, the result is unspecified, but the same on all
    /// ranks.
    Max,
    /// The sum divided by the number of ranks. `i32` and `u8` are summed as `i64`; integers are
    /// rounded towards zero.
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

/// Combines the elements of another rank, given as bytes, into `own`. Both have the same length.
pub(super) fn combine<T: Number>(reduction: Reduction, own: &mut [T], incoming: &[u8]) {
    match reduction {
        Reduction::Sum | Reduction::Mean => each(own, incoming, T::plus),
        Reduction::Product => each(own, incoming, T::times),
        Reduction::Min => each(own, incoming, |own, other| if other < own { other } else { own }),
        Reduction::Max => each(own, incoming, |own, other| if other > own { other } else { own }),
    }
}

#[inline(always)]
fn each<T: Number>(own: &mut [T], incoming: &[u8], combine: impl Fn(T, T) -> T) {
    // Incoming bytes are mostly aligned for their type, but they need not be.
    if let Ok(incoming) = bytemuck::try_cast_slice::<u8, T>(incoming) {
        own.iter_mut().zip(incoming).for_each(|(own, other)| *own = combine(*own, *other));
    } else {
        let incoming = incoming.chunks_exact(size_of::<T>());
        own.iter_mut()
            .zip(incoming)
            .for_each(|(own, other)| *own = combine(*own, pod_read_unaligned(other)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::number::bytes;

    proptest! {
        #[test]
        fn unaligned_elements_are_combined_like_aligned_ones(
            values: Vec<(i32, i32)>,
            shift in 0usize..8,
        ) {
            let (own, other): (Vec<i32>, Vec<i32>) = values.into_iter().unzip();
            let mut shifted = vec![0; shift];
            shifted.extend_from_slice(bytes(&other));
            let mut sums = own.clone();
            combine(Reduction::Sum, &mut sums, &shifted[shift..]);
            let pairs = own.iter().zip(&other);
            let expected: Vec<i32> = pairs.map(|(a, b)| a.wrapping_add(*b)).collect();
            prop_assert_eq!(sums, expected);
        }
    }
}
