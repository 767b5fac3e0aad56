//! Functions that take one more argument than their callers pass, which the call adds.

use std::marker::PhantomData;

use fiber_core::Result;
use fiber_values::{Argument, Inputs, PartsBuilder, PartsReader, Portable, Whole};
use serde::Serializer;
use serde::ser::SerializeTuple;

/// The arguments of a task, and the last one of its call.
pub(super) struct And<A, B>(pub(super) A, pub(super) B);

/// Marks such arguments, and functions that take them. `M` marks those without the last one.
pub(super) struct AndLast<M>(PhantomData<M>);

/// The function `F` as a task function that takes `L` last, and makes of it what `F` takes.
pub(super) struct Taking<F, L>(pub(super) F, PhantomData<fn() -> L>);

impl<F, L> Taking<F, L> {
    pub(super) fn last(function: F) -> Taking<F, L> {
        Taking(function, PhantomData)
    }
}

impl<F: Copy, L> Clone for Taking<F, L> {
    fn clone(&self) -> Taking<F, L> {
        *self
    }
}

impl<F: Copy, L> Copy for Taking<F, L> {}

/// Implements `$function` for functions that take one argument, or so many parts of a tuple, and
/// then `$last`, a type of `$of`.
macro_rules! functions_with_last {
    ($function:ident, $of:ident, $last:ty: $(($($part:ident)*))+) => {
        #[diagnostic::do_not_recommend]
        impl<Z, A, $of, R> $function<A, $of, OneArgument<A>> for Z
        where
            Z: Fn(A, $last) -> R + Copy + Send + 'static,
        {
            type Output = R;

            fn call(self, args: A, last: $last) -> R {
                user_code(move || self(args, last))
            }
        }

        $(#[diagnostic::do_not_recommend]
        impl<Z, $of, R, $($part),*> $function<($($part,)*), $of, TupleArguments<($($part,)*)>> for Z
        where
            Z: Fn($($part,)* $last) -> R + Copy + Send + 'static,
        {
            type Output = R;

            #[allow(non_snake_case)]
            fn call(self, ($($part,)*): ($($part,)*), last: $last) -> R {
                user_code(move || self($($part,)* last))
            }
        })+
    };
}

pub(super) use functions_with_last;

impl<A, P, B, M> Inputs<(P, B), AndLast<M>> for And<A, B>
where
    A: Inputs<P, M>,
    B: Portable,
{
    const HAS_OUTPUTS: bool = A::HAS_OUTPUTS;

    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(2)?;
        tuple.serialize_element(&Whole::<A, P, M>::new(&self.0))?;
        tuple.serialize_element(&self.1)?;
        tuple.end()
    }

    fn add(&self, parts: &mut PartsBuilder) -> Result<()> {
        self.0.add(parts)?;
        Argument::<B>::add(&self.1, parts)
    }

    fn read(parts: &mut PartsReader<'_>) -> Result<(P, B)> {
        Ok((A::read(parts)?, <B as Argument<B>>::read(parts)?))
    }
}
