//! What functions that run in other processes may return, and how it is taken there.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;

use crate::portable::Portable;
use crate::run::BlockOn;

/// What a task may return: a value that serde can carry, or a future of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be carried from a worker to its caller",
    note = "a task returns a value that implements serde's `Serialize` and `Deserialize` and borrows nothing, or a future \
            of one: a `String` for a `&str`; for a `Result` whose error serde can't carry use the `try_` form \
            (`try_map`, `try_apply`, …)",
    note = "a `Pool`, a process, a manager or a held lock stays in its process: return what its caller needs of it"
)]
pub trait Output<Marker> {
    /// What the caller receives.
    type Value: Portable + Send + 'static;

    /// The value, waiting for it if it is a future.
    fn settle(self, executor: &dyn BlockOn) -> Self::Value;
}

/// What a task of the `try_` forms may return: a `Result` whose error can be displayed, or a future
/// of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Result` that can be carried from a worker to its caller",
    note = "the `try_` forms take functions that return `Result<T, E>` (or a future of it), where serde can carry `T`, \
            and `E` implements `Display`"
)]
pub trait TryOutput<Marker> {
    /// What the caller receives of a task that succeeds.
    type Value: Portable + Send + 'static;

    /// The value, or the error in words.
    fn settle(self, executor: &dyn BlockOn) -> Result<Self::Value, String>;
}

/// Marks outputs that are values.
#[derive(Debug)]
pub struct Plain;

/// Marks outputs that are futures.
#[derive(Debug)]
pub struct Awaited;

#[diagnostic::do_not_recommend]
impl<T: Portable + Send + 'static> Output<Plain> for T {
    type Value = T;

    fn settle(self, _: &dyn BlockOn) -> T {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<F: Future> Output<Awaited> for F
where
    F::Output: Portable + Send + 'static,
{
    type Value = F::Output;

    fn settle(self, executor: &dyn BlockOn) -> F::Output {
        wait(self, executor)
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> TryOutput<Plain> for Result<T, E>
where
    T: Portable + Send + 'static,
    E: Display,
{
    type Value = T;

    fn settle(self, _: &dyn BlockOn) -> Result<T, String> {
        // The alternate form prints the whole chain of an `anyhow::Error`.
        self.map_err(|error| format!("{error:#}"))
    }
}

#[diagnostic::do_not_recommend]
impl<T, E, F> TryOutput<Awaited> for F
where
    F: Future<Output = Result<T, E>>,
    T: Portable + Send + 'static,
    E: Display,
{
    type Value = T;

    fn settle(self, executor: &dyn BlockOn) -> Result<T, String> {
        TryOutput::<Plain>::settle(wait(self, executor), executor)
    }
}

/// Marks outputs of functions that never return: they panic, or run until their process ends.
#[derive(Debug)]
pub struct Diverging;

/// The type `!`, which has no name of its own yet.
type Never = <fn() -> ! as Returns>::Type;

/// Names what functions return.
#[doc(hidden)]
pub trait Returns {
    /// What they return.
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

/// Nothing arrives, so its type stands for nothing.
#[diagnostic::do_not_recommend]
impl Output<Diverging> for Never {
    type Value = ();

    fn settle(self, _: &dyn BlockOn) {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<F: Future<Output = Never>> Output<Later<Diverging>> for F {
    type Value = ();

    fn settle(self, executor: &dyn BlockOn) {
        wait(self, executor)
    }
}

#[diagnostic::do_not_recommend]
impl TryOutput<Diverging> for Never {
    type Value = ();

    fn settle(self, _: &dyn BlockOn) -> Result<(), String> {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<F: Future<Output = Never>> TryOutput<Later<Diverging>> for F {
    type Value = ();

    fn settle(self, executor: &dyn BlockOn) -> Result<(), String> {
        wait(self, executor)
    }
}

/// What the function of a supervised process may return: nothing, or a `Result` whose error can be
/// displayed, or a future of either.
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

/// A function that serves for ever returns nothing either.
impl Conclusion<Plain> for Never {
    fn settle(self, _: &dyn BlockOn) -> Result<(), String> {
        self
    }
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

/// How the output of a function is taken: as a value ([`Values`]), as a success or a failure
/// ([`Tries`]), or as no more than that ([`Conclusions`]).
pub trait OutputKind<R>: 'static {
    /// What the caller receives.
    type Value: Portable + Send + 'static;

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

impl<R: Output<M>, M: 'static> OutputKind<R> for Values<M> {
    type Value = R::Value;

    fn settle(output: R, executor: &dyn BlockOn) -> Result<R::Value, String> {
        Ok(output.settle(executor))
    }
}

impl<R: TryOutput<M>, M: 'static> OutputKind<R> for Tries<M> {
    type Value = R::Value;

    fn settle(output: R, executor: &dyn BlockOn) -> Result<R::Value, String> {
        output.settle(executor)
    }
}

impl<R: Conclusion<M>, M: 'static> OutputKind<R> for Conclusions<M> {
    type Value = ();

    fn settle(output: R, executor: &dyn BlockOn) -> Result<(), String> {
        output.settle(executor)
    }
}
