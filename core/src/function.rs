//! What can be a task: any `fn` and any closure that captures nothing, sync or async.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;

use crate::codec;
use crate::entry::{Entry, instance};
use crate::error::{Failure, FailureKind};
use crate::output::OutputKind;
use crate::panics;
use crate::run::{BlockOn, Outcome, Tasks};
use crate::transfer;

/// A function that takes `Args`: one value, or a tuple of two to eight that it takes as separate
/// arguments.
///
/// It is implemented for every `fn` and every closure that captures nothing; `Marker` only tells
/// the compiler which of the two ways to take arguments is meant, and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be called with `{Args}` as a task",
    label = "not a task function for `{Args}`",
    note = "a task function is an `fn` or a closure that captures nothing; it takes the item as its one parameter, or \
            the parts of a tuple as two to eight parameters",
    note = "for several parameters, make each item a tuple with a value for each of them; for more than eight, take one \
            tuple or struct as the only parameter"
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

#[diagnostic::do_not_recommend]
impl<F, A, R> Function<A, One<A>> for F
where
    F: Fn(A) -> R + Copy + 'static,
{
    type Output = R;

    fn call(self, args: A) -> R {
        self(args)
    }
}

/// A tuple that holds an argument for each of several parameters.
///
/// It stands between [`Function`] and the tuple, so that an item that is no tuple is refused in the
/// words of `Function`: with the tuple in the implementation's head, the compiler reports
/// mismatched types instead.
pub trait Arguments<Parameters> {
    /// The arguments.
    fn spread(self) -> Parameters;
}

macro_rules! many {
    ($($name:ident)+) => {
        #[diagnostic::do_not_recommend]
        impl<$($name),+> Arguments<($($name,)+)> for ($($name,)+) {
            fn spread(self) -> Self {
                self
            }
        }

        #[diagnostic::do_not_recommend]
        impl<F, Args, R, $($name),+> Function<Args, Many<($($name,)+)>> for F
        where
            F: Fn($($name),+) -> R + Copy + 'static,
            Args: Arguments<($($name,)+)>,
        {
            type Output = R;

            #[allow(non_snake_case)]
            fn call(self, args: Args) -> R {
                let ($($name,)+) = args.spread();
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

#[diagnostic::do_not_recommend]
impl<F, R> Function<(), Many<()>> for F
where
    F: Fn() -> R + Copy + 'static,
{
    type Output = R;

    fn call(self, (): ()) -> R {
        self()
    }
}

/// Checks, when it is compiled, that there is nothing of `F` but its code.
///
/// The public methods that take a function evaluate it in their own bodies, as `const {
/// assert_captures_nothing::<F>() }`: so the compiler's note shows the line of the program that calls
/// them, and not one of fiber's own.
#[track_caller]
pub const fn assert_captures_nothing<F>() {
    // Not `assert!`: what the compiler shows of that depends on whether it has the standard
    // library's sources.
    let assert_captures_nothing = if size_of::<F>() == 0 { Some(()) } else { None };
    assert_captures_nothing.expect(
        "the function of the call that is shown below captures variables, which another process does not have: pass them \
         as arguments (a tuple for several), or share them with `Pool::broadcast`. A function pointer (`as fn(..) -> ..`) \
         counts as captured: name the function itself",
    );
}

/// Calls `F`, of which there is only one instance: it captures nothing.
pub fn invoke<F, A, M>(args: A) -> F::Output
where
    F: Function<A, M>,
{
    instance::<F>().call(args)
}

/// The entry through which other nodes run `F`.
///
/// That `F` captures nothing is up to the caller: see [`assert_captures_nothing`].
pub fn task_entry<F, A, M, K>() -> &'static Entry
where
    F: Function<A, M>,
    A: DeserializeOwned,
    K: OutputKind<F::Output>,
{
    Maker::<F, A, M, K>::ENTRY
}

struct Maker<F, A, M, K>(PhantomData<(F, A, M, K)>);

impl<F, A, M, K> Maker<F, A, M, K>
where
    F: Function<A, M>,
    A: DeserializeOwned,
    K: OutputKind<F::Output>,
{
    const ENTRY: &'static Entry = &Entry::new(std::any::type_name::<F>, Self::run);

    fn run(tasks: &mut dyn Tasks) {
        let mut value = Vec::new();
        // Panics are caught for all tasks at once, until there is one: it would cost as much as a
        // short task.
        while let Err(panic) =
            panics::catch(|| catch_unwind(AssertUnwindSafe(|| Self::run_all(tasks, &mut value))))
        {
            fail(&mut value, &Failure::from(panic));
            tasks.finish(Outcome::Failure, &mut value);
        }
    }

    fn run_all(tasks: &mut dyn Tasks, value: &mut Vec<u8>) {
        while let Some((args, executor)) = tasks.next() {
            value.clear();
            let outcome = match Self::run_one(args, executor, value) {
                Ok(()) => Outcome::Value,
                Err((kind, message)) => {
                    fail(value, &Failure::new(kind, message));
                    Outcome::Failure
                }
            };
            tasks.finish(outcome, value);
        }
    }

    fn run_one(
        args: &[u8],
        executor: &dyn BlockOn,
        value: &mut Vec<u8>,
    ) -> Result<(), (FailureKind, String)> {
        let args: A =
            codec::decode(args).map_err(|error| (FailureKind::Arguments, error.to_string()))?;
        let output = invoke::<F, A, M>(args);
        let output =
            K::resolve(output, executor).map_err(|message| (FailureKind::Returned, message))?;
        transfer::once(|| codec::append(value, &output))
            .map_err(|error| (FailureKind::Result, error.to_string()))
    }
}

fn fail(value: &mut Vec<u8>, failure: &Failure) {
    value.clear();
    codec::append(value, failure).expect("a failure is made of text, which serialises");
}
