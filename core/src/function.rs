//! What can be a task: any `fn` and any closure that captures nothing, sync or async.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::entry::{Entry, instance};
use crate::error::{Failure, FailureKind};
use crate::panics;
use crate::run::{BlockOn, Outcome, Tasks};

/// A function that takes `Args`: one value, or a tuple of two to eight that it takes as separate arguments.
///
/// It is implemented for every `fn` and every closure that captures nothing; `Marker` only tells the compiler which of
/// the two ways to take arguments is meant, and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be called with `{Args}` as a task",
    label = "not a task function for `{Args}`",
    note = "a task function is an `fn` or a closure that captures nothing; it takes the item as its one argument, or \
            the parts of a tuple as separate ones"
)]
pub trait Function<Args, Marker>: Copy + 'static {
    /// What the function returns.
    type Output;

    /// Calls it.
    fn call(self, args: Args) -> Self::Output;
}

/// Marks functions that take the item itself.
#[derive(Debug)]
pub struct One<A>(PhantomData<A>);

/// Marks functions that take the parts of a tuple.
#[derive(Debug)]
pub struct Many<A>(PhantomData<A>);

impl<F, A, R> Function<A, One<A>> for F
where
    F: Fn(A) -> R + Copy + 'static,
{
    type Output = R;

    fn call(self, args: A) -> R {
        self(args)
    }
}

macro_rules! many {
    ($($name:ident)+) => {
        impl<F, R, $($name),+> Function<($($name,)+), Many<($($name,)+)>> for F
        where
            F: Fn($($name),+) -> R + Copy + 'static,
        {
            type Output = R;

            #[allow(non_snake_case)]
            fn call(self, ($($name,)+): ($($name,)+)) -> R {
                self($($name),+)
            }
        }
    };
}

many!(A B);
many!(A B C);
many!(A B C D);
many!(A B C D E);
many!(A B C D E G);
many!(A B C D E G H);
many!(A B C D E G H I);

impl<F, R> Function<(), Many<()>> for F
where
    F: Fn() -> R + Copy + 'static,
{
    type Output = R;

    fn call(self, (): ()) -> R {
        self()
    }
}

/// What a task may return: a value that serde can carry, or a future of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be carried from a worker to its caller",
    note = "a task returns a value that implements serde's `Serialize` and `DeserializeOwned`, or a future of one; for \
            a `Result` whose error serde can't carry use the `try_` form (`try_map`, `try_apply`, …)"
)]
pub trait Output<Marker> {
    /// What the caller receives.
    type Value: Serialize + DeserializeOwned + Send + 'static;

    /// The value, waiting for it if it is a future.
    fn settle(self, executor: &dyn BlockOn) -> Self::Value;
}

/// What a task of the `try_` forms may return: a `Result` whose error can be displayed, or a future of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Result` that can be carried from a worker to its caller",
    note = "the `try_` forms take functions that return `Result<T, E>` (or a future of it), where serde can carry `T`, \
            and `E` implements `Display`"
)]
pub trait TryOutput<Marker> {
    /// What the caller receives of a task that succeeds.
    type Value: Serialize + DeserializeOwned + Send + 'static;

    /// The value, or the error in words.
    fn settle(self, executor: &dyn BlockOn) -> Result<Self::Value, String>;
}

/// Marks outputs that are values.
#[derive(Debug)]
pub struct Plain;

/// Marks outputs that are futures.
#[derive(Debug)]
pub struct Awaited;

impl<T: Serialize + DeserializeOwned + Send + 'static> Output<Plain> for T {
    type Value = T;

    fn settle(self, _: &dyn BlockOn) -> T {
        self
    }
}

impl<F: Future> Output<Awaited> for F
where
    F::Output: Serialize + DeserializeOwned + Send + 'static,
{
    type Value = F::Output;

    fn settle(self, executor: &dyn BlockOn) -> F::Output {
        wait(self, executor)
    }
}

impl<T, E> TryOutput<Plain> for Result<T, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    E: Display,
{
    type Value = T;

    fn settle(self, _: &dyn BlockOn) -> Result<T, String> {
        // The alternate form prints the whole chain of an `anyhow::Error`.
        self.map_err(|error| format!("{error:#}"))
    }
}

impl<T, E, F> TryOutput<Awaited> for F
where
    F: Future<Output = Result<T, E>>,
    T: Serialize + DeserializeOwned + Send + 'static,
    E: Display,
{
    type Value = T;

    fn settle(self, executor: &dyn BlockOn) -> Result<T, String> {
        TryOutput::<Plain>::settle(wait(self, executor), executor)
    }
}

/// What the function of a supervised process may return: nothing, or a `Result` whose error can be displayed, or a future
/// of either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't tell whether a supervised process ended well",
    note = "as `main` does, the function of a supervised process returns nothing, or `Result<T, E>` where `E` implements \
            `Display`, or a future of either"
)]
pub trait Conclusion<Marker> {
    /// Waits for it. The error in words, if it is one.
    ///
    /// # Errors
    /// The function's own.
    fn settle(self, executor: &dyn BlockOn) -> Result<(), String>;
}

/// Marks conclusions that can be errors.
#[derive(Debug)]
pub struct Fallible;

/// Marks conclusions that are futures.
#[derive(Debug)]
pub struct Later<Marker>(PhantomData<Marker>);

impl Conclusion<Plain> for () {
    fn settle(self, _: &dyn BlockOn) -> Result<(), String> {
        Ok(())
    }
}

/// A function that serves for ever returns nothing either. (Its type has no name of its own yet.)
impl Conclusion<Plain> for <fn() -> ! as Returns>::Type {
    fn settle(self, _: &dyn BlockOn) -> Result<(), String> {
        self
    }
}

/// Names what functions return.
#[doc(hidden)]
pub trait Returns {
    /// What they return.
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

impl<T, E: Display> Conclusion<Fallible> for Result<T, E> {
    fn settle(self, _: &dyn BlockOn) -> Result<(), String> {
        self.map(drop).map_err(|error| format!("{error:#}"))
    }
}

impl<F: Future<Output: Conclusion<M>>, M> Conclusion<Later<M>> for F {
    fn settle(self, executor: &dyn BlockOn) -> Result<(), String> {
        wait(self, executor).settle(executor)
    }
}

fn wait<F: Future>(future: F, executor: &dyn BlockOn) -> F::Output {
    let mut output = None;
    executor.block_on(std::pin::pin!(async { output = Some(future.await) }));
    output.expect("the executor runs a future to its end")
}

/// How the output of a function is taken: as a value ([`Values`]), as a success or a failure ([`Tries`]), or as no more than
/// that ([`Conclusions`]).
pub trait Kind<R>: 'static {
    /// What the caller receives.
    type Value: Serialize + DeserializeOwned + Send + 'static;

    /// Waits for it, and tells success from failure.
    ///
    /// # Errors
    /// The task's own error, in words.
    fn settle(output: R, executor: &dyn BlockOn) -> Result<Self::Value, String>;
}

/// The output is the value, whatever it is.
#[derive(Debug)]
pub struct Values<Marker>(PhantomData<Marker>);

/// The output is a `Result`; an `Err` is a failure of the task.
#[derive(Debug)]
pub struct Tries<Marker>(PhantomData<Marker>);

/// The output tells only how it ended.
#[derive(Debug)]
pub struct Conclusions<Marker>(PhantomData<Marker>);

impl<R: Output<M>, M: 'static> Kind<R> for Values<M> {
    type Value = R::Value;

    fn settle(output: R, executor: &dyn BlockOn) -> Result<R::Value, String> {
        Ok(output.settle(executor))
    }
}

impl<R: TryOutput<M>, M: 'static> Kind<R> for Tries<M> {
    type Value = R::Value;

    fn settle(output: R, executor: &dyn BlockOn) -> Result<R::Value, String> {
        output.settle(executor)
    }
}

impl<R: Conclusion<M>, M: 'static> Kind<R> for Conclusions<M> {
    type Value = ();

    fn settle(output: R, executor: &dyn BlockOn) -> Result<(), String> {
        output.settle(executor)
    }
}

/// Calls `F`, of which there is only one instance: it captures nothing, which is checked when this is compiled.
pub fn invoke<F, A, M>(args: A) -> F::Output
where
    F: Function<A, M>,
{
    instance::<F>().call(args)
}

/// The entry through which other nodes run `F`.
///
/// That `F` captures nothing is checked when this is compiled.
pub fn task_entry<F, A, M, K>() -> &'static Entry
where
    F: Function<A, M>,
    A: DeserializeOwned,
    K: Kind<F::Output>,
{
    Maker::<F, A, M, K>::ENTRY
}

struct Maker<F, A, M, K>(PhantomData<(F, A, M, K)>);

impl<F, A, M, K> Maker<F, A, M, K>
where
    F: Function<A, M>,
    A: DeserializeOwned,
    K: Kind<F::Output>,
{
    const ENTRY: &'static Entry = {
        // Not `assert!`: what the compiler shows of that depends on whether it has the standard library's sources.
        let captures_nothing = if size_of::<F>() == 0 { Some(()) } else { None };
        captures_nothing.expect(
            "a task function can't capture variables, for it runs in another process: pass what it needs as arguments \
             (a tuple for several), or share it with `Pool::broadcast`. A function pointer (`as fn(..) -> ..`) is \
             not a task function either: name the function itself.",
        );
        &Entry::new(std::any::type_name::<F>, Self::run)
    };

    fn run(tasks: &mut dyn Tasks) {
        let mut value = Vec::new();
        // Panics are caught for all tasks at once, until there is one: it would cost as much as a short task.
        while let Err(message) = panics::catch(|| catch_unwind(AssertUnwindSafe(|| Self::run_all(tasks, &mut value)))) {
            fail(&mut value, FailureKind::Panicked, message);
            tasks.finish(Outcome::Failure, &mut value);
        }
    }

    fn run_all(tasks: &mut dyn Tasks, value: &mut Vec<u8>) {
        while let Some((args, executor)) = tasks.next() {
            value.clear();
            let outcome = match Self::run_one(args, executor, value) {
                Ok(()) => Outcome::Value,
                Err((kind, message)) => {
                    fail(value, kind, message);
                    Outcome::Failure
                }
            };
            tasks.finish(outcome, value);
        }
    }

    fn run_one(args: &[u8], executor: &dyn BlockOn, value: &mut Vec<u8>) -> Result<(), (FailureKind, String)> {
        let args: A = codec::decode(args).map_err(|error| (FailureKind::Arguments, error.to_string()))?;
        let output = invoke::<F, A, M>(args);
        let output = K::settle(output, executor).map_err(|message| (FailureKind::Returned, message))?;
        codec::append(value, &output).map_err(|error| (FailureKind::Result, error.to_string()))
    }
}

fn fail(value: &mut Vec<u8>, kind: FailureKind, message: String) {
    value.clear();
    codec::append(value, &Failure { kind, message }).expect("a failure is made of text, which serialises");
}
