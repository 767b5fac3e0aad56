//! The merge of a call's values to one, in a tree of tasks.
//!
//! All merges are tasks of one call, each of which takes two outputs: of the call whose values are
//! merged, or of the call itself. The handle has the last output. Merges own the others, so that
//! dropping the handle lets go of the call, of its merges, and then of the values that they wait
//! for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::vec;

use fiber_core::{Result, block_on};
use fiber_values::{Inputs, Output, OutputCell, TypedEntry};
use serde::de::DeserializeOwned;

use super::batch::Order;
use super::calls::ActiveCall;
use super::outputs::{CallOutputs, outputs};
use super::pool::WeakPool;

/// The inputs of a merge.
pub(super) type Pair<T> = (Output<T>, Output<T>);

/// Merges the values of a call of `count` tasks.
pub(super) fn merged<T, M>(
    call: ActiveCall,
    count: u64,
    pool: &WeakPool,
    merge: TypedEntry<(T, T), T>,
) -> Result<Option<Output<T>>>
where
    T: 'static,
    Pair<T>: Inputs<(T, T), M>,
{
    if count < 2 {
        return Ok(outputs(Ok(call), count, None).pop());
    }
    // Merges free memory.
    let Some(pool) = pool.upgrade() else { return Err(call.ended()) };
    let pool = pool.with_options(|options| options.call.comes_first = true);
    let merging = Arc::new(OnceLock::new());
    let result = OutputCell::new(Arc::clone(&merging) as Arc<_>);
    let values = outputs(Ok(call), count, Some(&result));
    let nothing = Arc::new(());
    let inner = (2..count).map(|_| OutputCell::new(Arc::clone(&nothing) as Arc<_>));
    let mut cells: Vec<_> = inner.collect();
    let merges: Vec<_> = cells.iter().cloned().map(Output::of).collect();
    let pairs =
        Pairs { values: values.into_iter(), merges: merges.into_iter(), unmerged: Vec::new() };
    let call = ActiveCall::new(pool.submit(merge, pairs, Order::Together).0?);
    cells.push(Arc::clone(&result));
    call.pass_to(CallOutputs::new(&call.exchange, &cells, Some(&result)));
    let _ = merging.set(call);
    Ok(Some(Output::of(result)))
}

/// The pairs of a tree over values in their order. Each pair follows those that it needs, and few
/// values without a pair precede it.
struct Pairs<T> {
    values: vec::IntoIter<Output<T>>,
    /// The outputs of the merges in their order, without the last.
    merges: vec::IntoIter<Output<T>>,
    /// Outputs that have no pair so far, each with the height of its tree. Heights decrease.
    unmerged: Vec<(u32, Output<T>)>,
}

impl<T> Iterator for Pairs<T> {
    type Item = Pair<T>;

    fn next(&mut self) -> Option<Pair<T>> {
        loop {
            let are_due = match &*self.unmerged {
                [.., (left, _), (right, _)] => left == right || self.values.len() == 0,
                _ => false,
            };
            if !are_due {
                self.unmerged.push((0, self.values.next()?));
                continue;
            }
            let ((_, right), (height, left)) = (self.unmerged.pop()?, self.unmerged.pop()?);
            self.unmerged.extend(self.merges.next().map(|merged| (height + 1, merged)));
            return Some((left, right));
        }
    }
}

/// A future of the values of many tasks that are merged to one, from
/// [`MapCall::reduce`](crate::MapCall::reduce). It is `None` if there is no value.
///
/// The first failure of a task or a merge is that of all, and cancels those that have not started.
/// So does dropping the handle.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(2)?;
/// let largest = pool.map(|x: u64| x * 7 % 10, 0..10).reduce(u64::max);
/// assert_eq!(largest.wait()?, Some(9));
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "dropping the handle cancels all tasks that have not started: use `.await` or \
              `.wait()`"]
pub struct ReduceCall<T>(Result<Option<Output<T>>>);

impl<T: DeserializeOwned> ReduceCall<T> {
    pub(super) fn new(merged: Result<Option<Output<T>>>) -> ReduceCall<T> {
        ReduceCall(merged)
    }

    /// Keeps the merged value where it is, as an [`Output`] that other tasks take. There is none
    /// without items.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let sum = pool.map(|x: u64| x * x, 0..4).reduce(|a, b| a + b).output();
    /// let sum = sum.expect("there are items");
    /// assert_eq!(pool.apply(|sum: u64, count: u64| sum / count, (sum, 4)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "dropping the output cancels the tasks that have not started"]
    pub fn output(self) -> Option<Output<T>> {
        self.0.unwrap_or_else(|error| Some(Output::of(OutputCell::filled(Err(error)))))
    }

    /// Blocks this thread until the merged value is there.
    ///
    /// # Errors
    /// The first failure of a task or a merge, as in [`MapCall::wait`](crate::MapCall::wait).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let none = pool.map(|x: u64| x, 0..0).reduce(u64::max);
    /// assert_eq!(none.wait()?, None);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Result<Option<T>> {
        block_on(self)
    }
}

impl<T: DeserializeOwned> Future for ReduceCall<T> {
    type Output = Result<Option<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Option<T>>> {
        match &self.0 {
            Ok(Some(output)) => Pin::new(&mut output.get()).poll(context).map_ok(Some),
            Ok(None) => Poll::Ready(Ok(None)),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl<T> fmt::Debug for ReduceCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReduceCall")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_neighbours_in_a_flat_tree_and_follow_what_they_need() {
        for count in [2_usize, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 1000] {
            let cells = |count| -> Vec<Output<u64>> {
                let cell = |_| Output::of(OutputCell::new(Arc::new(())));
                (0..count).map(cell).collect()
            };
            let (values, merges) = (cells(count), cells(count - 2));
            // The range of values in each output that is known, and its height.
            let mut known: Vec<_> =
                (0..count).map(|at| (values[at].clone(), at..at + 1, 0)).collect();
            let pairs = Pairs {
                values: values.into_iter(),
                merges: merges.clone().into_iter(),
                unmerged: Vec::new(),
            };
            let mut made = 0;
            for (left, right) in pairs {
                let mut take = |output: &Output<u64>| {
                    let at = known.iter().position(|(known, ..)| known.cell() == output.cell());
                    known.swap_remove(at.expect("it is made before it is needed, and taken once"))
                };
                let (left, right) = (take(&left), take(&right));
                assert_eq!(left.1.end, right.1.start);
                let height = left.2.max(right.2) + 1;
                let output = merges.get(made).cloned().unwrap_or_else(|| left.0.clone());
                known.push((output, left.1.start..right.1.end, height));
                made += 1;
            }
            assert_eq!(made, count - 1);
            let [(_, all, height)] = &*known else { panic!("{} are left", known.len()) };
            assert_eq!((all.clone(), *height), (0..count, count.next_power_of_two().ilog2()));
        }
    }
}
