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
