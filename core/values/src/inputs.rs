//! Arguments of a task that have outputs of other tasks among them.
//!
//! Arguments without outputs are one encoded value, as ever. With outputs, they are *parts*: each
//! argument is encoded by itself, so that the value of an output can take its place as it is. A
//! part is the length of its bytes and the number of its blobs, as two little-endian `u32`, and the
//! bytes; a list of outputs is their number and as many parts.

mod parts;

use std::marker::PhantomData;
use std::sync::Arc;

use fiber_core::Result;
use serde::de::DeserializeOwned;
use serde::ser::SerializeTuple;
use serde::{Serialize, Serializer};

use self::parts::Part;
pub use self::parts::{Parts, PartsBuilder, PartsReader, PartsRecipe};
use crate::codec::EncodedValue;
use crate::function::{OneArgument, TupleArguments};
use crate::output::Output;
use crate::portable::Portable;

/// An argument that may stand for a parameter of type `P` of a task function: a `P`, an
/// [`Output<P>`], or a `Vec<Output<T>>` where `P` is a `Vec<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't stand for the parameter `{P}` of this task function",
    label = "the function takes `{P}`",
    note = "a parameter takes a value of its own type that serde can carry, or an output of that \
            type; a `Vec<T>` takes a `Vec<Output<T>>`, too"
)]
pub trait Argument<P> {
    /// Whether it is made of outputs.
    const HAS_OUTPUTS: bool;

    /// Serializes an argument without outputs.
    ///
    /// # Errors
    /// As its type.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// Adds the argument to the parts.
    ///
    /// # Errors
    /// [`Error::Encode`](fiber_core::Error::Encode).
    fn add(&self, parts: &mut PartsBuilder) -> Result<()>;

    /// Reads the parameter from its parts.
    ///
    /// # Errors
    /// [`Error::Decode`](fiber_core::Error::Decode).
    fn read(parts: &mut PartsReader<'_>) -> Result<P>;
}

impl<T: Portable> Argument<T> for T {
    const HAS_OUTPUTS: bool = false;

    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Serialize::serialize(self, serializer)
    }

    fn add(&self, parts: &mut PartsBuilder) -> Result<()> {
        parts.push_value(EncodedValue::new(self)?);
        Ok(())
    }

    fn read(parts: &mut PartsReader<'_>) -> Result<T> {
        parts.value()
    }
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Argument<T> for Output<T> {
    const HAS_OUTPUTS: bool = true;

    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(no_value())
    }

    fn add(&self, parts: &mut PartsBuilder) -> Result<()> {
        parts.push(Part::Output(Arc::clone(self.cell())));
        Ok(())
    }

    fn read(parts: &mut PartsReader<'_>) -> Result<T> {
        parts.value()
    }
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Argument<Vec<T>> for Vec<Output<T>> {
    const HAS_OUTPUTS: bool = true;

    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(no_value())
    }

    fn add(&self, parts: &mut PartsBuilder) -> Result<()> {
        parts.push(Part::List(self.len() as u32));
        self.iter().try_for_each(|output| Argument::<T>::add(output, parts))
    }

    fn read(parts: &mut PartsReader<'_>) -> Result<Vec<T>> {
        let count = parts.number()?;
        (0..count).map(|_| parts.value()).collect()
    }
}

fn no_value<E: serde::ser::Error>() -> E {
    E::custom("an output is no value")
}

/// The arguments that may stand for all parameters `P` of a task function: an [`Argument`], or a
/// tuple of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't stand for the arguments of this task function",
    label = "the function takes other arguments",
    note = "an argument is a value of the parameter's own type, an `Output` of it, or a \
            `Vec<Output<T>>` for a `Vec<T>`",
    note = "for several parameters, pass a tuple with an argument for each of them, and in a map \
            make each item a tuple"
)]
pub trait Inputs<P, Marker> {
    /// Whether one of them is made of outputs.
    const HAS_OUTPUTS: bool;

    /// Serializes arguments without outputs, together.
    ///
    /// # Errors
    /// As their types.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// Adds the arguments to the parts.
    ///
    /// # Errors
    /// [`Error::Encode`](fiber_core::Error::Encode).
    fn add(&self, parts: &mut PartsBuilder) -> Result<()>;

    /// Reads the parameters from their parts.
    ///
    /// # Errors
    /// [`Error::Decode`](fiber_core::Error::Decode).
    fn read(parts: &mut PartsReader<'_>) -> Result<P>;
}

#[diagnostic::do_not_recommend]
impl<X: Argument<P>, P> Inputs<P, OneArgument<P>> for X {
    const HAS_OUTPUTS: bool = X::HAS_OUTPUTS;

    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Argument::serialize(self, serializer)
    }

    fn add(&self, parts: &mut PartsBuilder) -> Result<()> {
        Argument::add(self, parts)
    }

    fn read(parts: &mut PartsReader<'_>) -> Result<P> {
        <X as Argument<P>>::read(parts)
    }
}

#[diagnostic::do_not_recommend]
impl Inputs<(), TupleArguments<()>> for () {
    const HAS_OUTPUTS: bool = false;

    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Serialize::serialize(self, serializer)
    }

    fn add(&self, _: &mut PartsBuilder) -> Result<()> {
        Ok(())
    }

    fn read(_: &mut PartsReader<'_>) -> Result<()> {
        Ok(())
    }
}

macro_rules! many {
    ($($argument:ident $parameter:ident $place:tt),+) => {
        #[diagnostic::do_not_recommend]
        impl<$($argument: Argument<$parameter>, $parameter),+>
            Inputs<($($parameter,)+), TupleArguments<($($parameter,)+)>> for ($($argument,)+)
        {
            const HAS_OUTPUTS: bool = $($argument::HAS_OUTPUTS)||+;

            #[inline]
            fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                let mut tuple = serializer.serialize_tuple([$($place),+].len())?;
                $(tuple.serialize_element(&One::<$argument, $parameter>::new(&self.$place))?;)+
                tuple.end()
            }

            fn add(&self, parts: &mut PartsBuilder) -> Result<()> {
                $(self.$place.add(parts)?;)+
                Ok(())
            }

            fn read(parts: &mut PartsReader<'_>) -> Result<($($parameter,)+)> {
                Ok(($($argument::read(parts)?,)+))
            }
        }
    };
}

many!(X A 0, Y B 1);
many!(X A 0, Y B 1, V C 2);
many!(X A 0, Y B 1, V C 2, W D 3);
many!(X A 0, Y B 1, V C 2, W D 3, U E 4);
many!(X A 0, Y B 1, V C 2, W D 3, U E 4, T F 5);
many!(X A 0, Y B 1, V C 2, W D 3, U E 4, T F 5, S G 6);
many!(X A 0, Y B 1, V C 2, W D 3, U E 4, T F 5, S G 6, R H 7);

/// One argument of a tuple.
type One<'a, X, P> = Whole<'a, X, P, OneArgument<P>>;

/// Arguments without outputs, as the value that the function's parameters are.
#[derive(Debug)]
pub struct Whole<'a, A, P, M>(&'a A, PhantomData<fn() -> (P, M)>);

impl<'a, A, P, M> Whole<'a, A, P, M> {
    /// Wraps the arguments.
    #[inline]
    pub fn new(arguments: &'a A) -> Whole<'a, A, P, M> {
        Whole(arguments, PhantomData)
    }
}

impl<A: Inputs<P, M>, P, M> Serialize for Whole<'_, A, P, M> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Inputs::serialize(self.0, serializer)
    }
}

#[cfg(test)]
mod tests {
    use fiber_core::Error;

    use super::parts::SHORT;
    use super::*;
    use crate::blob::{Blobs, MIN_LEN};
    use crate::codec;
    use crate::{Array, OutputCell};

    type Two<A, B> = TupleArguments<(A, B)>;

    fn filled<T: Serialize>(value: &T) -> Output<T> {
        Output::of(OutputCell::filled(EncodedValue::new(value)))
    }

    fn travel<A: Inputs<P, M>, P, M>(arguments: &A) -> Result<P> {
        let (mut parts, mut bytes) = (PartsBuilder::default(), Vec::new());
        arguments.add(&mut parts)?;
        let blobs = parts.build().append(&mut bytes)?;
        A::read(&mut PartsReader::new(&bytes, &blobs))
    }

    #[test]
    fn outputs_take_the_places_of_their_values_with_their_blobs() {
        let arrays = [3_u8, 5].map(|fill| Array::from(vec![fill; MIN_LEN]));
        let (first, second) =
            (filled(&arrays[0]), filled(&("text".to_string(), arrays[1].clone())));
        type Second = (String, Array<u8>);
        let read = travel::<_, _, Two<Array<u8>, Second>>(&(first.clone(), second)).unwrap();
        assert_eq!(read, (arrays[0].clone(), ("text".into(), arrays[1].clone())));
        let read: (Vec<Array<u8>>, u32) =
            travel::<_, _, Two<Vec<Array<u8>>, u32>>(&(vec![first.clone(), first], 7)).unwrap();
        assert_eq!(read, (vec![arrays[0].clone(); 2], 7));
        let none: Vec<Output<u64>> = Vec::new();
        assert_eq!(travel::<_, Vec<u64>, OneArgument<Vec<u64>>>(&none).unwrap(), [0; 0]);
    }

    #[test]
    fn arguments_without_outputs_are_one_value() {
        let whole = (7, "a".to_string());
        let whole = Whole::<_, (u32, String), Two<u32, String>>::new(&whole);
        assert_eq!(codec::encode(&whole).unwrap(), codec::encode(&(7_u32, "a")).unwrap());
        const { assert!(!<(u32, String) as Inputs<_, Two<u32, String>>>::HAS_OUTPUTS) };
        const { assert!(<(Output<u32>, u8) as Inputs<_, Two<u32, u8>>>::HAS_OUTPUTS) };
    }

    /// Returns the identity of arguments whose long values are hashed to their length.
    fn identity<A: Inputs<P, M>, P, M>(arguments: &A) -> Vec<u8> {
        let mut parts = PartsBuilder::default();
        arguments.add(&mut parts).unwrap();
        parts.build().identity(|value| [value.size() as u8; 32]).unwrap()
    }

    #[test]
    fn arguments_are_identified_by_their_values() {
        let long = "x".repeat(SHORT + 1);
        let (one, list) = (filled(&5_u32), vec![filled(&long)]);
        let of = identity::<_, (u32, Vec<String>, u32), _>(&(one.clone(), list.clone(), 7_u32));
        let again = identity::<_, (u32, Vec<String>, u32), _>(&(5_u32, list, filled(&7_u32)));
        assert_eq!(of, again);
        assert_eq!(of.len(), 3 + 5 + 33 + 3);
        // An empty list and a list of one are not the values in them.
        let none: Vec<Output<u32>> = Vec::new();
        assert!(!identity::<_, Vec<u32>, OneArgument<_>>(&none).is_empty());
        assert_ne!(
            identity::<_, Vec<u32>, OneArgument<_>>(&vec![one.clone()]),
            identity::<_, u32, OneArgument<_>>(&one)
        );
    }

    #[test]
    fn a_failed_output_is_the_failure_of_all() {
        let failed: Output<u8> = Output::of(OutputCell::filled(Err(Error::NotInitialized)));
        let problem = travel::<_, _, Two<u8, u8>>(&(failed, 1)).unwrap_err();
        assert!(matches!(problem, Error::NotInitialized), "{problem}");
    }

    /// Encodes arguments around the value of `missing`, and returns the place of that.
    fn around<A: Inputs<P, M>, P, M>(
        arguments: &A,
        missing: &Arc<OutputCell>,
    ) -> Option<(Vec<u8>, usize)> {
        let (mut parts, mut bytes) = (PartsBuilder::default(), Vec::new());
        arguments.add(&mut parts).unwrap();
        let place = parts.build().append_around(missing, &mut bytes)?;
        Some((bytes, place))
    }

    fn read<A: Inputs<P, M>, P, M>(_: &A, bytes: &[u8]) -> Result<P> {
        A::read(&mut PartsReader::new(bytes, &Blobs::default()))
    }

    #[test]
    fn a_value_that_is_written_later_takes_its_place() {
        type Three = TupleArguments<(u8, Vec<String>, u32)>;
        let missing: Output<String> = Output::of(OutputCell::pending());
        let arguments = (filled(&1_u8), vec![missing.clone()], 7_u32);
        let (bytes, place) = around::<_, _, Three>(&arguments, missing.cell()).unwrap();
        let mut whole = bytes[..place].to_vec();
        Parts::append_value(&mut whole, &codec::encode(&"text").unwrap());
        whole.extend_from_slice(&bytes[place..]);
        let read = read::<_, _, Three>(&arguments, &whole).unwrap();
        assert_eq!(read, (1, vec!["text".to_string()], 7));
        let twice = (missing.clone(), missing.clone());
        assert_eq!(around::<_, _, Two<String, String>>(&twice, missing.cell()), None);
        let two = (missing.clone(), Output::<u8>::of(OutputCell::pending()));
        assert_eq!(around::<_, _, Two<String, u8>>(&two, missing.cell()), None);
    }

    #[test]
    fn bytes_that_are_cut_are_an_error() {
        let (mut parts, mut bytes) = (PartsBuilder::default(), Vec::new());
        Argument::<String>::add(&filled(&"text".to_string()), &mut parts).unwrap();
        let blobs = parts.build().append(&mut bytes).unwrap();
        for len in 0..bytes.len() {
            let mut reader = PartsReader::new(&bytes[..len], &blobs);
            assert!(<Output<String> as Argument<String>>::read(&mut reader).is_err());
        }
    }
}
