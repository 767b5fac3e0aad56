//! Outputs: values of tasks that stay in this process until other tasks take them.
//!
//! An [`OutputCell`] is the place of one task's value. The call that makes the value fills the cell,
//! once. Futures wait for it, and tasks that take the value ([`Dependent`]).

mod afterwards;
mod cell;
mod memory;
mod recipe;
pub mod travel;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fiber_core::{Result, block_on, forks};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::afterwards::{HeldBack, afterwards, hold_back};
pub use self::cell::{Dependent, Digest, Maker, MakingCall, OutputCell};
pub use self::recipe::{Make, Recipe};
use crate::codec::EncodedValue;
use crate::slot::Waiting;

/// The value that a task will have, which stays where it is until another task or this program asks
/// for it.
///
/// An output stands wherever a task function takes its value: `pool.apply(join, (left, 3))` with a
/// `left` of type `Output<Table>` runs `fn join(left: Table, count: u32)`, and a `Vec<Output<T>>`
/// stands for a `Vec<T>`. The task runs when all its inputs are there. If one of them fails, the
/// task does not run, and fails with [`Error::InputFailed`](fiber_core::Error::InputFailed).
///
/// Clones are handles to the same value, and cost a counter. The last one frees the value. If the
/// task has not started by then, and no other output of its call is left, it is cancelled.
///
/// An output travels to other processes, as an argument whose parameter is an `Output`, inside of
/// other values, through queues and to actors. The value stays in the process that made the call,
/// as long as any process has a handle, and goes to those that use it.
///
/// A value with handles of shared objects (queues, addresses …) is for one taker.
///
/// # Examples
/// ```
/// # use fiber_values as fiber;
/// use fiber::Output;
///
/// fn sum_of(numbers: &[Output<u64>]) -> u64 {
///     numbers.iter().filter_map(|number| number.get().wait().ok()).sum()
/// }
///
/// assert_eq!(sum_of(&[]), 0);
/// ```
///
/// `ApplyCall::output` has one with a pool.
pub struct Output<T> {
    cell: Arc<OutputCell>,
    value: PhantomData<fn() -> T>,
}

impl<T> Output<T> {
    /// Returns the handle of a cell.
    pub fn of(cell: Arc<OutputCell>) -> Output<T> {
        Output { cell, value: PhantomData }
    }

    /// Returns the value's place.
    pub fn cell(&self) -> &Arc<OutputCell> {
        &self.cell
    }

    /// Returns whether the value is there, or will never be.
    ///
    /// In another process than the one that made the call, this asks for the value.
    pub fn is_ready(&self) -> bool {
        self.cell.ask();
        self.cell.is_filled()
    }

    /// Returns a future of the value: a copy of it in this process. [`Fetch::wait`] blocks for it.
    ///
    /// # Errors
    /// The future fails as the task has.
    pub fn get(&self) -> Fetch<T> {
        Fetch { cell: Arc::clone(&self.cell), waiting: None, value: PhantomData }
    }
}

impl<T> Clone for Output<T> {
    fn clone(&self) -> Output<T> {
        Output::of(Arc::clone(&self.cell))
    }
}

/// An output travels as a handle. The value goes to processes that ask for it.
impl<T> Serialize for Output<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        travel::serialize(&self.cell, serializer)
    }
}

impl<'de, T> Deserialize<'de> for Output<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Output<T>, D::Error> {
        travel::deserialize(deserializer).map(Output::of)
    }
}

impl<T> fmt::Debug for Output<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cell.is_filled() { "Output(ready)" } else { "Output(pending)" })
    }
}

impl<T: DeserializeOwned> IntoFuture for Output<T> {
    type Output = Result<T>;
    type IntoFuture = Fetch<T>;

    fn into_future(self) -> Fetch<T> {
        self.get()
    }
}

/// A future of the value of an [`Output`].
#[must_use = "the value arrives with `.await` or `.wait()`"]
pub struct Fetch<T> {
    cell: Arc<OutputCell>,
    /// The wait of a task for it.
    waiting: Option<Waiting>,
    value: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Fetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetch")
    }
}

impl<T: DeserializeOwned> Fetch<T> {
    /// Blocks until the value is there.
    ///
    /// # Errors
    /// As the task, and [`Error::WouldDeadlock`](fiber_core::Error::WouldDeadlock) on a thread that
    /// has to run for it.
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }
}

impl<T: DeserializeOwned> Future for Fetch<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        forks::check()?;
        let value = self.cell.poll(context);
        Waiting::note(&mut self.waiting, &value);
        let decode =
            |value: EncodedValue| value.decode().map_err(|error| self.cell.unreadable(error));
        Poll::Ready(ready!(value).and_then(decode))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn pending() -> Arc<OutputCell> {
        OutputCell::new(Arc::new(()))
    }

    fn value(number: u64) -> Result<EncodedValue> {
        EncodedValue::new(&number)
    }

    #[test]
    fn a_value_is_there_for_all_that_wait_and_for_those_that_come() {
        let output = Output::<u64>::of(pending());
        let waiting = output.get();
        assert!(!output.is_ready() && output.cell().value().is_none());
        let filler = Arc::clone(output.cell());
        std::thread::spawn(move || filler.fill(value(5)));
        assert_eq!(waiting.wait().unwrap(), 5);
        output.cell().fill(value(6));
        assert_eq!(output.get().wait().unwrap(), 5, "it is filled once");
    }

    /// The next of a chain, which is filled after the one before.
    struct Next(Arc<OutputCell>, AtomicUsize);

    impl Dependent for Next {
        fn input_is_ready(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.fill(value(0));
        }
    }

    #[test]
    fn a_call_is_dropped_behind_the_lock_of_those_that_hold_it_back() {
        /// Takes a lock when it is dropped, as a call does.
        struct Locking(Arc<parking_lot::Mutex<usize>>);
        impl Drop for Locking {
            fn drop(&mut self) {
                *self.0.try_lock().expect("nothing has the lock") += 1;
            }
        }
        let lock = Arc::new(parking_lot::Mutex::new(0));
        let cell = || OutputCell::new(Arc::new(Locking(Arc::clone(&lock))));
        let held_back = hold_back();
        let within = hold_back();
        let locked = lock.lock();
        drop((cell(), within));
        assert_eq!(*locked, 0);
        drop(locked);
        drop(held_back);
        assert_eq!(*lock.lock(), 1);
        drop(cell());
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    fn a_chain_may_be_longer_than_the_stack_is_deep() {
        const LENGTH: usize = 100_000;
        let (first, mut chain) = (pending(), Vec::new());
        let mut last = Arc::clone(&first);
        for _ in 0..LENGTH {
            let next = Arc::new(Next(pending(), AtomicUsize::new(0)));
            let dependent: Arc<dyn Dependent> = Arc::clone(&next) as _;
            assert!(last.tell(&Arc::downgrade(&dependent)));
            last = Arc::clone(&next.0);
            chain.push(next);
        }
        first.fill(value(0));
        assert!(chain.iter().all(|next| next.1.load(Ordering::Relaxed) == 1));
        // Each cell keeps the one before, as a task keeps its inputs.
        let last = (0..LENGTH).fold(pending(), |before, _| OutputCell::new(before));
        drop(last);
    }
}
