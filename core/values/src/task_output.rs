//! The types that functions return from other processes, and their conversion to results.

use std::any::Any;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;

use crate::portable::Portable;
use crate::run::BlockOn;
use fiber_core::stacks::user_code;
use fiber_core::{Failure, FailureKind};

/// The return type of a task function: a value that serde can carry, or a future of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be carried from a worker to its caller",
    note = "a task returns a value that implements serde's `Serialize` and `Deserialize` and \
            borrows nothing, or a future of one: a `String` for a `&str`; for a `Result` whose \
            error serde can't carry use the `try_` form (`try_map`, `try_apply`, …)",
    note = "a `Pool`, a process, a manager or a held lock stays in its process: return what its \
            caller needs of it"
)]
pub trait TaskOutput<Marker> {
    /// The type that the caller receives.
    type Value: Portable + Send + 'static;

    /// Returns the value. Waits for it if it is a future.
    fn resolve(self, executor: &dyn BlockOn) -> Self::Value;
}

/// The return type of a task function for the `try_` forms: a `Result` whose error implements
/// `Display`, or a future of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Result` that can be carried from a worker to its caller",
    note = "the `try_` forms take functions that return `Result<T, E>` (or a future of it), where \
            serde can carry `T`, and `E` implements `Display`"
)]
pub trait TryOutput<Marker> {
    /// The type that the caller receives from a task that succeeds.
    type Value: Portable + Send + 'static;

    /// Returns the value, or the error as a failure. Waits for it if it is a future.
    ///
    /// # Errors
    /// The function's own error.
    fn resolve(self, executor: &dyn BlockOn) -> Result<Self::Value, Failure>;
}

/// Marks outputs that are values.
#[derive(Debug)]
pub struct Plain;

/// Marks outputs that are futures. `Marker` marks their own output.
#[derive(Debug)]
pub struct FutureOf<Marker>(PhantomData<Marker>);

/// Marks outputs of functions that never return: they panic, or run until their process ends.
#[derive(Debug)]
pub struct Diverging;

/// Marks outputs that are results.
#[derive(Debug)]
pub struct Fallible;

/// The type `!`, which has no stable name yet.
type Never = <fn() -> ! as Returns>::Type;

/// Names the return type of a function type.
#[doc(hidden)]
pub trait Returns {
    /// The return type.
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

#[diagnostic::do_not_recommend]
impl<T: Portable + Send + 'static> TaskOutput<Plain> for T {
    type Value = T;

    fn resolve(self, _: &dyn BlockOn) -> T {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<F: Future> TaskOutput<FutureOf<Plain>> for F
where
    F::Output: Portable + Send + 'static,
{
    type Value = F::Output;

    fn resolve(self, executor: &dyn BlockOn) -> F::Output {
        wait(self, executor)
    }
}

// A function that never returns has no value, so its caller's type is `()`.
#[diagnostic::do_not_recommend]
impl TaskOutput<Diverging> for Never {
    type Value = ();

    fn resolve(self, _: &dyn BlockOn) {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<F: Future<Output = Never>> TaskOutput<FutureOf<Diverging>> for F {
    type Value = ();

    fn resolve(self, executor: &dyn BlockOn) {
        wait(self, executor)
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> TryOutput<Plain> for Result<T, E>
where
    T: Portable + Send + 'static,
    E: Display + 'static,
{
    type Value = T;

    fn resolve(self, _: &dyn BlockOn) -> Result<T, Failure> {
        self.map_err(returned)
    }
}

#[diagnostic::do_not_recommend]
impl<T, E, F> TryOutput<FutureOf<Plain>> for F
where
    F: Future<Output = Result<T, E>>,
    T: Portable + Send + 'static,
    E: Display + 'static,
{
    type Value = T;

    fn resolve(self, executor: &dyn BlockOn) -> Result<T, Failure> {
        TryOutput::<Plain>::resolve(wait(self, executor), executor)
    }
}

#[diagnostic::do_not_recommend]
impl TryOutput<Diverging> for Never {
    type Value = ();

    fn resolve(self, _: &dyn BlockOn) -> Result<(), Failure> {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<F: Future<Output = Never>> TryOutput<FutureOf<Diverging>> for F {
    type Value = ();

    fn resolve(self, executor: &dyn BlockOn) -> Result<(), Failure> {
        wait(self, executor)
    }
}

/// Returns the failure of a function that returned an error. A [`Failure`] of its own making keeps
/// its message, whatever its length: it chose to send it.
fn returned<E: Display + 'static>(error: E) -> Failure {
    match (&error as &dyn Any).downcast_ref::<Failure>() {
        Some(failure) if failure.kind == FailureKind::Returned => failure.clone(),
        // The alternate form prints the whole chain of an `anyhow::Error`.
        _ => Failure::new(FailureKind::Returned, format!("{error:#}")),
    }
}

/// The return type of a supervised process's function, as [`std::process::Termination`] is that of
/// `main`: nothing, or a `Result` whose error implements `Display`, or a future of either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't tell whether the function ended well",
    note = "as `main` does, the function of a supervised process or of a stream returns nothing, \
            or `Result<T, E>` where `E` implements `Display`, or a future of either"
)]
pub trait Termination<Marker> {
    /// Waits for the output, and returns its error as text.
    ///
    /// # Errors
    /// The function's own error.
    fn resolve(self, executor: &dyn BlockOn) -> Result<(), String>;
}

impl Termination<Plain> for () {
    fn resolve(self, _: &dyn BlockOn) -> Result<(), String> {
        Ok(())
    }
}

impl Termination<Plain> for Never {
    fn resolve(self, _: &dyn BlockOn) -> Result<(), String> {
        self
    }
}

impl<T, E: Display> Termination<Fallible> for Result<T, E> {
    fn resolve(self, _: &dyn BlockOn) -> Result<(), String> {
        self.map(drop).map_err(|error| format!("{error:#}"))
    }
}

impl<F: Future<Output: Termination<M>>, M> Termination<FutureOf<M>> for F {
    fn resolve(self, executor: &dyn BlockOn) -> Result<(), String> {
        wait(self, executor).resolve(executor)
    }
}

fn wait<F: Future>(future: F, executor: &dyn BlockOn) -> F::Output {
    let mut future = pin!(future);
    let mut output = None;
    executor.block_on(pin!(poll_fn(|context| {
        user_code(|| future.as_mut().poll(context)).map(|ready| output = Some(ready))
    })));
    output.expect("the executor runs a future to its end")
}

/// The way in which fiber reads a function's output: [`AsValue`], [`AsResult`] or
/// [`AsTermination`].
pub trait OutputKind<R>: 'static {
    /// The type that the caller receives.
    type Value: Portable + Send + 'static;

    /// Waits for the output, and returns the value or the failure.
    ///
    /// # Errors
    /// The task's own error.
    fn resolve(output: R, executor: &dyn BlockOn) -> Result<Self::Value, Failure>;
}

/// Takes any output as a value.
#[derive(Debug)]
pub struct AsValue<Marker>(PhantomData<Marker>);

/// Takes a `Result`: an `Err` is a failure of the task.
#[derive(Debug)]
pub struct AsResult<Marker>(PhantomData<Marker>);

/// Takes only whether the function succeeded.
#[derive(Debug)]
pub struct AsTermination<Marker>(PhantomData<Marker>);

impl<R: TaskOutput<M>, M: 'static> OutputKind<R> for AsValue<M> {
    type Value = R::Value;

    fn resolve(output: R, executor: &dyn BlockOn) -> Result<R::Value, Failure> {
        Ok(output.resolve(executor))
    }
}

impl<R: TryOutput<M>, M: 'static> OutputKind<R> for AsResult<M> {
    type Value = R::Value;

    fn resolve(output: R, executor: &dyn BlockOn) -> Result<R::Value, Failure> {
        output.resolve(executor)
    }
}

impl<R: Termination<M>, M: 'static> OutputKind<R> for AsTermination<M> {
    type Value = ();

    fn resolve(output: R, executor: &dyn BlockOn) -> Result<(), Failure> {
        output.resolve(executor).map_err(|message| Failure::new(FailureKind::Returned, message))
    }
}
