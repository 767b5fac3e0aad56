//! Task functions: any `fn` and any closure that captures nothing, sync or async.

use std::any::TypeId;
use std::marker::PhantomData;
use std::mem::needs_drop;
use std::panic::Location;

use serde::de::DeserializeOwned;

use crate::blob::Blobs;
use crate::codec;
use crate::entry::{Entry, instance};
use crate::inputs::{Inputs, PartsReader};
use crate::run::{BlockOn, Outcome, Tasks};
use crate::task_output::OutputKind;
use crate::transfer;
use fiber_core::Meta;
use fiber_core::panics;
use fiber_core::stacks::user_code;
use fiber_core::{Failure, FailureKind};

/// A task function that takes `Args`: one value, or a tuple of two to eight that it takes as
/// separate arguments.
///
/// Every `fn` and every closure that captures nothing implements it. The compiler always infers
/// `Marker`, which distinguishes how the arguments are taken.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no task function for `{Args}`: it captures variables, or takes other \
               arguments",
    label = "captures variables, or does not take `{Args}`",
    note = "another process does not have what a closure captures, with or without `move`: pass it \
            as an argument (a tuple for several), or share it with `Pool::with`",
    note = "a task function is an `fn` or a closure that captures nothing; it takes the item as \
            its one parameter, or the parts of a tuple as two to eight parameters",
    note = "for several parameters, make each item a tuple with a value for each of them; for more \
            than eight, take one tuple or struct as the only parameter"
)]
pub trait Function<Args, Marker>: Copy + Send + 'static {
    /// The type that the function returns.
    type Output;

    /// Calls the function.
    fn call(self, args: Args) -> Self::Output;

    /// Returns its path.
    #[doc(hidden)]
    fn name() -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Returns the resources of its `#[fiber::meta]`.
    #[doc(hidden)]
    fn meta() -> Meta {
        Meta::of::<Self>()
    }
}

/// Marks functions that take the item as their one argument.
#[derive(Debug)]
pub struct OneArgument<A>(PhantomData<A>);

/// Marks functions that take the parts of a tuple as their arguments. `()` is for none.
#[derive(Debug)]
pub struct TupleArguments<A>(PhantomData<A>);

#[diagnostic::do_not_recommend]
impl<F, A, R> Function<A, OneArgument<A>> for F
where
    F: Fn(A) -> R + Copy + Send + 'static,
{
    type Output = R;

    fn call(self, args: A) -> R {
        user_code(move || self(args))
    }
}

/// A tuple that holds an argument for each of several parameters.
///
/// With this trait between [`Function`] and the tuple, the compiler shows the message of `Function`
/// for an item that is not a tuple. With the tuple in the implementation's head, it would report
/// mismatched types.
pub trait Arguments<Parameters> {
    /// Returns the arguments.
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
        impl<F, Args, R, $($name),+> Function<Args, TupleArguments<($($name,)+)>> for F
        where
            F: Fn($($name),+) -> R + Copy + Send + 'static,
            Args: Arguments<($($name,)+)>,
        {
            type Output = R;

            #[allow(non_snake_case)]
            fn call(self, args: Args) -> R {
                let ($($name,)+) = args.spread();
                user_code(move || self($($name),+))
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
impl<F, R> Function<(), TupleArguments<()>> for F
where
    F: Fn() -> R + Copy + Send + 'static,
{
    type Output = R;

    fn call(self, (): ()) -> R {
        user_code(self)
    }
}

/// Fails the build if `F` captures variables.
///
/// Each public method that takes a function evaluates `const { assert_captures_nothing::<F>() }` in
/// its own body. The compiler's note then shows the caller's line; in a function further in, it
/// would show only fiber's source.
#[track_caller]
pub const fn assert_captures_nothing<F>() {
    // Not `assert!`: its error differs with and without the standard library's sources.
    let assert_captures_nothing = if size_of::<F>() == 0 { Some(()) } else { None };
    assert_captures_nothing.expect(
        "the function of the call that is shown below captures variables, which another process \
         does not have, with or without `move`: pass them as arguments (`|x, offset| x + offset` \
         for items `(x, offset)`), or share them with `Pool::with`. A function pointer (`as fn(..) \
         -> ..`) counts as captured: name the function itself",
    );
}

/// Calls `F`, which captures nothing.
///
/// # Safety
/// As that of [`instance`].
#[allow(unsafe_code)]
pub unsafe fn invoke<F, A, M>(args: A) -> F::Output
where
    F: Function<A, M>,
{
    // SAFETY: the caller promises it.
    unsafe { instance::<F>() }.call(args)
}

/// The [`Entry`] of a task function, with the types that its caller needs: `A` of the arguments,
/// `T` of the value that the caller receives.
#[derive(Debug)]
pub struct TypedEntry<A, T> {
    /// The entry.
    pub entry: &'static Entry,
    /// The resources of the function's `#[fiber::meta]`.
    pub meta: Meta,
    /// The function's type. Two closures in one function have the same path, and not the same type.
    pub function: TypeId,
    types: PhantomData<fn(A) -> T>,
}

impl<A: DeserializeOwned, T> TypedEntry<A, T> {
    /// Returns the entry of a function with outputs of this kind. The caller makes sure that the
    /// function captures nothing: see [`assert_captures_nothing`].
    #[track_caller]
    pub fn of<F, M, K>(_function: F) -> TypedEntry<A, T>
    where
        F: Function<A, M>,
        K: OutputKind<F::Output, Value = T>,
    {
        TypedEntry::with::<F, M>(TaskEntry::<F, A, M, K, Together>::ENTRY)
    }

    /// Works as [`of`](TypedEntry::of), for a function that a call passes the arguments `X`.
    #[track_caller]
    pub fn of_call<X, F, M, K>(function: F) -> TypedEntry<A, T>
    where
        X: Inputs<A, M>,
        F: Function<A, M>,
        K: OutputKind<F::Output, Value = T>,
    {
        if !X::HAS_OUTPUTS {
            return TypedEntry::of::<F, M, K>(function);
        }
        TypedEntry::with::<F, M>(TaskEntry::<F, A, M, K, InParts<X>>::ENTRY)
    }

    #[track_caller]
    fn with<F: Function<A, M>, M>(entry: &'static Entry) -> TypedEntry<A, T> {
        entry.passed_at(Location::caller());
        let function = TypeId::of::<F>();
        TypedEntry { entry, meta: F::meta(), function, types: PhantomData }
    }
}

/// How the arguments of a task are encoded.
trait Form<A, M> {
    fn decode(bytes: &[u8], blobs: &Blobs) -> fiber_core::Result<A>;
}

/// As one value.
struct Together;

impl<A: DeserializeOwned, M> Form<A, M> for Together {
    #[inline]
    fn decode(bytes: &[u8], blobs: &Blobs) -> fiber_core::Result<A> {
        codec::decode_with(bytes, blobs)
    }
}

/// In the parts of the arguments `X`.
struct InParts<X>(PhantomData<X>);

impl<A, M, X: Inputs<A, M>> Form<A, M> for InParts<X> {
    fn decode(bytes: &[u8], blobs: &Blobs) -> fiber_core::Result<A> {
        X::read(&mut PartsReader::new(bytes, blobs))
    }
}

/// Holds the entry of `F` as a constant.
struct TaskEntry<F, A, M, K, D>(PhantomData<(F, A, M, K, D)>);

impl<F, A, M, K, D> TaskEntry<F, A, M, K, D>
where
    F: Function<A, M>,
    K: OutputKind<F::Output>,
    D: Form<A, M>,
{
    const ENTRY: &'static Entry = &Entry::new(F::name, Self::run);

    fn run(tasks: &mut dyn Tasks) {
        let mut value = Vec::new();
        // One `catch` serves all tasks until one panics: it costs as much as a short task.
        while let Err(panic) = panics::catch(|| Self::run_all(tasks, &mut value)) {
            encode_failure(&mut value, &Failure::from(panic));
            tasks.finish(Outcome::Failure, &mut value, Blobs::default());
        }
    }

    #[allow(unsafe_code)]
    fn run_all(tasks: &mut dyn Tasks, value: &mut Vec<u8>) {
        while let Some((args, blobs, executor)) = tasks.next() {
            value.clear();
            let args = || D::decode(args, blobs);
            let encode = |output: &_| codec::append_owned_apart(value, output);
            // SAFETY: the entry is made from a value of F.
            let function = |args| unsafe { invoke::<F, A, M>(args) };
            let called = call_encoded::<A, _, K, _>(args, function, executor, encode);
            let (outcome, blobs) = match called {
                Ok(blobs) => (Outcome::Value, blobs),
                Err(failure) => {
                    encode_failure(value, &failure);
                    (Outcome::Failure, Blobs::default())
                }
            };
            tasks.finish(outcome, value, blobs);
        }
    }
}

/// Decodes arguments, calls a function with them, and encodes its result.
///
/// # Errors
/// A failure of the function, or of serde.
pub fn call_encoded<A, R, K, E>(
    decode: impl FnOnce() -> fiber_core::Result<A>,
    function: impl FnOnce(A) -> R,
    executor: &dyn BlockOn,
    encode: impl FnOnce(&K::Value) -> fiber_core::Result<E>,
) -> Result<E, Failure>
where
    K: OutputKind<R>,
{
    let args = decode().map_err(|error| Failure::new(FailureKind::Arguments, error))?;
    let output = K::resolve(function(args), executor)?;
    // A handle has something to drop.
    let encoded =
        if needs_drop::<K::Value>() { transfer::once(|| encode(&output)) } else { encode(&output) };
    encoded.map_err(|error| Failure::new(FailureKind::Result, error))
}

fn encode_failure(value: &mut Vec<u8>, failure: &Failure) {
    value.clear();
    codec::append(value, failure).expect("a failure is made of text, which serializes");
}
