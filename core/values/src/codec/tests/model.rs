//! Every type of serde's data model, except enums, arrives equal.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::num::{NonZeroI128, NonZeroU8, Wrapping};
use std::ops::{Bound, Range, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::collection::{btree_map, hash_map, vec};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::{Unit, arrives, decode, encode};

/// Options in options. Generated values have `None` at any level.
type Nested<T> = Option<Option<Option<Option<Option<T>>>>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
struct Newtype<T>(T);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tuple(u8, Option<Option<()>>, Option<Unit>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Fields {
    plain: Nested<i16>,
    #[serde(rename = "another name")]
    renamed: Option<Option<()>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absent_or_null: Option<Option<u8>>,
    #[serde(skip)]
    skipped: (),
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    #[serde(flatten)]
    flat: Flat,
    #[serde(flatten)]
    rest: BTreeMap<String, Option<Option<i32>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Flat {
    deep: Nested<u64>,
    text: Option<String>,
    unit: Option<Option<()>>,
    list: Vec<Option<Option<char>>>,
    floats: (f32, f64),
    blob: ByteBuf,
}

fn nested<T: Arbitrary + Clone + 'static>() -> impl Strategy<Value = Nested<T>> {
    any::<Nested<T>>()
}

fn flat() -> impl Strategy<Value = Flat> {
    (
        nested(),
        any::<(Option<String>, Option<Option<()>>, Vec<Option<Option<char>>>, (f32, f64), Vec<u8>)>(
        ),
    )
        .prop_map(|(deep, (text, unit, list, floats, blob))| Flat {
            deep,
            text,
            unit,
            list,
            floats,
            blob: ByteBuf::from(blob),
        })
}

fn fields() -> impl Strategy<Value = Fields> {
    (
        nested(),
        any::<(Option<Option<()>>, Option<Option<u8>>, Vec<u8>)>(),
        flat(),
        // Names of no field.
        btree_map("[A-Z]{0,8}", any::<Option<Option<i32>>>(), 0..20),
    )
        .prop_map(|(plain, (renamed, absent_or_null, bytes), flat, rest)| Fields {
            plain,
            renamed,
            absent_or_null,
            skipped: (),
            bytes,
            flat,
            rest,
        })
}

fn unit() -> impl Strategy<Value = Unit> {
    Just(Unit)
}

proptest! {
    #[test]
    fn numbers_texts_and_bytes_arrive(
        numbers in any::<(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128)>(),
        others in any::<(bool, f32, f64, char, String, isize, usize)>(),
        bytes in vec(any::<u8>(), 0..300),
        many in vec(any::<(i64, f64)>(), 0..40),
    ) {
        arrives(&numbers);
        arrives(&others);
        arrives(&ByteBuf::from(bytes.clone()));
        arrives(&bytes);
        arrives(&many);
        arrives(&(NonZeroU8::new(numbers.5), NonZeroI128::new(numbers.4)));
        arrives(&(Wrapping(numbers.3), Reverse(numbers.0)));
    }

    #[test]
    fn options_around_anything_arrive(
        numbers in nested::<u8>(),
        units in nested::<()>(),
        texts in nested::<String>(),
        wide in nested::<i128>(),
        many in vec(nested::<()>(), 0..20),
        inner in nested::<Vec<Option<Option<u8>>>>(),
        boxed in any::<Option<Box<Option<Rc<Option<Arc<Option<()>>>>>>>>(),
        results in any::<Option<Result<Option<()>, Option<Option<u8>>>>>(),
    ) {
        arrives(&numbers);
        arrives(&units);
        arrives(&texts);
        arrives(&wide);
        arrives(&many);
        arrives(&inner);
        arrives(&boxed);
        arrives(&results);
        arrives(&(Some(Newtype(numbers)), Newtype(Some(Newtype(units)))));
        arrives(&Some(Newtype(Some(texts))));
    }

    #[test]
    fn unit_structs_in_options_arrive(units in proptest::option::of(proptest::option::of(unit()))) {
        arrives(&units);
        arrives(&vec![units; 3]);
        arrives(&units.map(|unit| unit.map(Newtype)));
        arrives(&units.map(|unit| unit.map(|_| PhantomData::<u8>)));
        arrives(&Tuple(1, units.map(|unit| unit.map(|_| ())), units.flatten()));
    }

    #[test]
    fn structs_with_every_attribute_arrive(fields in fields()) {
        arrives(&fields);
        arrives(&Some(vec![Some(fields)]));
    }

    #[test]
    fn maps_with_any_key_arrive(
        options in hash_map(any::<Option<Option<u8>>>(), any::<Option<Option<()>>>(), 0..10),
        tuples in btree_map(any::<(u8, Option<()>, char)>(), any::<Option<Option<u8>>>(), 0..40),
        wide in btree_map(any::<i128>(), any::<()>(), 0..10),
        units in btree_map(any::<()>(), any::<Option<()>>(), 0..2),
        lists in btree_map(vec(any::<Option<Option<bool>>>(), 0..4), any::<u8>(), 0..5),
        results in hash_map(any::<Result<u8, Option<()>>>(), any::<String>(), 0..10),
    ) {
        arrives(&options);
        arrives(&tuples);
        arrives(&wide);
        arrives(&units);
        arrives(&lists);
        arrives(&results);
        let newtypes = tuples.iter().map(|(key, value)| (Newtype(*key), Newtype(*value)));
        let newtypes: HashMap<_, _> = newtypes.collect();
        arrives(&newtypes);
        let nested = tuples.into_iter();
        let nested = nested.map(|(key, value)| (BTreeMap::from([(key, value)]), Some(value)));
        let nested: BTreeMap<_, _> = nested.collect();
        arrives(&nested);
    }

    #[test]
    fn types_of_the_standard_library_arrive(
        ranges in any::<(Range<Option<u8>>, RangeInclusive<i64>)>(),
        times in any::<(Duration, Option<Option<Duration>>)>(),
        address in any::<Option<IpAddr>>(),
        shared in any::<(Arc<Option<()>>, Rc<Vec<Option<Option<u8>>>>, Box<Option<Option<()>>>)>(),
        queue in any::<VecDeque<Option<Option<()>>>>(),
        lists in any::<(BTreeSet<Option<u8>>, [Option<Option<u8>>; 4])>(),
        text in any::<Option<String>>(),
    ) {
        arrives(&ranges);
        arrives(&times);
        arrives(&(UNIX_EPOCH + times.0 / 4));
        arrives(&address);
        arrives(&shared);
        arrives(&queue);
        arrives(&lists);
        arrives(&text.clone().map(Cow::<str>::Owned));
        arrives(&(text.map(Bound::Included), Bound::<Option<()>>::Excluded(Some(()))));
        arrives(&Bound::<u8>::Unbounded);
    }
}

#[test]
fn options_around_nothing_differ_at_every_depth() {
    let all: [Nested<()>; 6] = [
        None,
        Some(None),
        Some(Some(None)),
        Some(Some(Some(None))),
        Some(Some(Some(Some(None)))),
        Some(Some(Some(Some(Some(()))))),
    ];
    arrives(&all);
    let encoded: Vec<_> = all.iter().map(|value| encode(value).unwrap()).collect();
    assert_eq!(encoded.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn special_floats_arrive_bit_by_bit() {
    for bits in [
        f64::NAN.to_bits(),
        f64::NAN.to_bits() | 5,
        f64::INFINITY.to_bits(),
        (-0.0_f64).to_bits(),
        1,
    ] {
        assert_eq!(decode::<f64>(&encode(&f64::from_bits(bits)).unwrap()).unwrap().to_bits(), bits);
    }
    let not_quiet = 0x7fa0_0001;
    assert_eq!(
        decode::<f32>(&encode(&f32::from_bits(not_quiet)).unwrap()).unwrap().to_bits(),
        not_quiet
    );
}

#[test]
fn the_limits_of_times_and_empty_things_arrive() {
    arrives(&(Duration::MAX, SystemTime::UNIX_EPOCH));
    arrives(&(
        String::new(),
        ByteBuf::new(),
        [(); 3],
        [0_u8; 0],
        Vec::<Unit>::new(),
        vec![(); 70_000],
    ));
    arrives(&(
        i128::MIN,
        u128::MAX,
        Some(i128::MAX),
        vec![Some(Some(u128::MAX)), Some(None), None],
    ));
}

#[test]
fn a_skipped_field_does_not_shift_the_next() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Gaps {
        #[serde(skip_serializing_if = "Option::is_none")]
        first: Option<u8>,
        second: Vec<BTreeMap<String, (i64, f32)>>,
    }
    arrives(&Gaps { first: None, second: vec![BTreeMap::from([("a".into(), (-1, 0.5))])] });
}
