//! Sequences of numbers are packed, and read as any type that sequences of numbers read as.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serializer};
use serde_bytes::ByteBuf;

use super::*;

#[test]
fn a_run_has_a_header_and_plain_numbers() {
    let header = |kind, bytes: &[u8]| [&[0xc1, kind, 0, 0, 0, 16], bytes].concat();
    assert_eq!(encode(&[200_u8; 16][..]).unwrap(), header(0xcc, &[200; 16]));
    let numbers = vec![1.5_f64; 16];
    assert_eq!(encode(&numbers).unwrap(), header(0xcb, &1.5_f64.to_le_bytes().repeat(16)));
    assert_eq!(encode(&vec![true; 16]).unwrap(), header(0xc3, &[1; 16]));
    assert_eq!(encode(&vec![-2_isize; 16]).unwrap(), header(0xd0, &[0xfe; 16]));
    assert_eq!(encode(&vec![128_i16; 16]).unwrap(), header(0xd1, &[128, 0].repeat(16)));
    assert_eq!(encode(&vec![1_u8; 15]).unwrap(), [&[0x9f][..], &[1; 15]].concat());
}

#[test]
fn integers_have_the_width_of_the_largest() {
    let len = |numbers: &[u64]| encode(numbers).unwrap().len() - 6;
    for (largest, width) in [(0, 1), (255, 1), (256, 2), (65_536, 4), (1 << 32, 8)] {
        for place in [0, 15, 600, 1_999] {
            let mut numbers = vec![0; 2_000];
            numbers[place] = largest;
            assert_eq!(len(&numbers), 2_000 * width, "{largest} at {place}");
            assert_eq!(decode::<Vec<u64>>(&encode(&numbers).unwrap()).unwrap(), numbers);
        }
    }
    for (far, width) in [(-128, 1), (127, 1), (128, 2), (-129, 2), (-32_769, 4), (i64::MIN, 8)] {
        let numbers = [vec![-1; 1_000], vec![far]].concat();
        let bytes = encode(&numbers).unwrap();
        assert_eq!(bytes.len() - 6, 1_001 * width, "{far}");
        assert_eq!(decode::<Vec<i64>>(&bytes).unwrap(), numbers);
    }
}

#[test]
fn a_vector_has_the_bytes_of_any_other_sequence_of_its_numbers() {
    macro_rules! check {
        ($($number:ident)*) => {
            $(for shift in 0..$number::BITS {
                for far in [$number::MAX >> shift, $number::MIN >> shift] {
                    let mut numbers = vec![0; 2_000];
                    numbers[1_500] = far;
                    let bytes = encode(&VecDeque::from(numbers.clone())).unwrap();
                    assert_eq!(encode(&numbers).unwrap(), bytes, "{far}");
                    assert_eq!(encode(&numbers[..]).unwrap(), bytes, "{far}");
                }
            })*
        };
    }
    check!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);
    let floats = vec![0.1_f32; 100];
    assert_eq!(encode(&floats).unwrap(), encode(&VecDeque::from(floats)).unwrap());
}

#[test]
fn bytes_read_as_a_vector_of_numbers() {
    for len in [0, 300, 70_000] {
        let bytes = ByteBuf::from(vec![200; len]);
        let encoded = encode(&bytes).unwrap();
        assert_eq!(decode::<Vec<u8>>(&encoded).unwrap(), bytes[..]);
        assert_eq!(decode::<Vec<u32>>(&encoded).unwrap(), vec![200; len]);
        assert!(decode::<Vec<bool>>(&encoded).is_err() || len == 0);
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Newtype<T>(T);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Numbers(Vec<i16>),
    Floats(Rc<[f64]>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Internal {
    Numbers { numbers: Vec<u32>, option: Option<Vec<f32>> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fields {
    bytes: Vec<u8>,
    flags: Option<Option<Vec<bool>>>,
    #[serde(flatten)]
    internal: Internal,
    untagged: Vec<Untagged>,
    nested: Vec<Vec<Vec<f64>>>,
    shared: Arc<[u16]>,
    boxed: Box<[isize]>,
    slice: Cow<'static, [i32]>,
    collections: (VecDeque<i8>, BTreeSet<usize>),
    newtype: Newtype<Option<Newtype<Vec<u64>>>>,
    wide: Vec<i128>,
    after: String,
}

fn fields() -> impl Strategy<Value = Fields> {
    let numbers = (
        vec(any::<u8>(), 0..40),
        any::<Option<Option<()>>>().prop_flat_map(|shape| {
            vec(any::<bool>(), 0..40)
                .prop_map(move |flags| shape.map(|inner| inner.map(|()| flags.clone())))
        }),
        vec(any::<u32>(), 0..40),
        proptest::option::of(vec(any::<f32>(), 0..40)),
        vec(any::<i16>(), 0..40),
        vec(any::<f64>().prop_map(|x| x + 0.1), 1..40),
        vec(vec(vec(any::<f64>(), 0..20), 0..4), 0..20),
        vec(any::<i128>(), 0..20),
    );
    let shared = (
        vec(any::<u16>(), 0..40),
        vec(any::<isize>(), 0..40),
        vec(any::<i8>(), 0..40),
        proptest::collection::btree_set(any::<usize>(), 0..40),
        vec(any::<i32>(), 0..40),
        proptest::option::of(vec(any::<u64>(), 0..40)),
    );
    (numbers, shared).prop_map(|(numbers, shared)| Fields {
        bytes: numbers.0,
        flags: numbers.1,
        internal: Internal::Numbers { numbers: numbers.2, option: numbers.3 },
        untagged: vec![Untagged::Numbers(numbers.4), Untagged::Floats(numbers.5.into())],
        nested: numbers.6,
        shared: shared.0.into(),
        boxed: shared.1.into(),
        slice: Cow::Owned(shared.4),
        collections: (shared.2.into(), shared.3),
        newtype: Newtype(shared.5.map(Newtype)),
        wide: numbers.7,
        after: "after".to_owned(),
    })
}

proptest! {
    #[test]
    fn numbers_in_any_value_arrive(fields in fields()) {
        arrives(&fields);
        arrives(&Some(Some(fields.clone())));
        arrives(&vec![fields.bytes.clone(), fields.bytes]);
    }

    #[test]
    fn integers_of_any_size_arrive(
        numbers in vec((any::<i64>(), 0..64_u32).prop_map(|(x, by)| x >> by), 0..700),
    ) {
        arrives(&numbers);
        arrives(&numbers.iter().map(|x| *x as u64).collect::<Vec<_>>());
        arrives(&numbers.iter().map(|x| *x as i32).collect::<Vec<_>>());
        arrives(&numbers.iter().map(|x| *x as i8).collect::<VecDeque<_>>());
        arrives(&numbers.iter().map(|x| f64::from_bits(*x as u64).abs()).filter(|x| !x.is_nan())
            .collect::<Vec<_>>());
    }

    #[test]
    fn a_cut_run_is_refused(numbers in vec(any::<i32>(), 16..100), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&numbers).unwrap();
        let part = &bytes[..cut.index(bytes.len())];
        prop_assert!(decode::<Vec<i32>>(part).is_err());
        prop_assert!(decode::<VecDeque<i32>>(part).is_err());
        prop_assert!(decode::<serde::de::IgnoredAny>(part).is_err());
    }
}

/// Checks that `numbers` reads as `T` with the result that it has when it is not packed.
fn reads_as<T: DeserializeOwned + Debug>(numbers: &impl Serialize) {
    let packed = encode(numbers).unwrap();
    assert_eq!(packed[0], 0xc1);
    let text = |read: Result<T>| match read {
        Ok(value) => format!("{value:?}"),
        Err(_) => "an error".to_owned(),
    };
    let (packed, plain) = (text(decode(&packed)), text(decode(&unpacked(&packed))));
    assert_eq!(packed, plain, "{}", std::any::type_name::<T>());
}

#[derive(Debug, Deserialize)]
enum Variant {
    Zero,
    One,
}

/// Ten more than the number that arrives.
#[derive(Debug, Deserialize)]
struct Changed(#[serde(deserialize_with = "ten_more")] Vec<u8>);

fn ten_more<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<u8>, D::Error> {
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Vec<u8>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bytes")
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut list: A,
        ) -> std::result::Result<Vec<u8>, A::Error> {
            let mut all = Vec::new();
            while let Some(number) = list.next_element::<u8>()? {
                all.push(number + 10);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Visitor)
}

#[test]
fn a_run_reads_as_any_type_that_its_numbers_read_as() {
    fn check(numbers: &impl Serialize) {
        reads_as::<Vec<u8>>(numbers);
        reads_as::<Vec<i8>>(numbers);
        reads_as::<Vec<u16>>(numbers);
        reads_as::<Vec<i64>>(numbers);
        reads_as::<Vec<u64>>(numbers);
        reads_as::<Vec<usize>>(numbers);
        reads_as::<Vec<f32>>(numbers);
        reads_as::<Vec<f64>>(numbers);
        reads_as::<Vec<bool>>(numbers);
        reads_as::<Vec<Option<f64>>>(numbers);
        reads_as::<Vec<Newtype<i32>>>(numbers);
        reads_as::<Vec<Option<Newtype<Option<u8>>>>>(numbers);
        reads_as::<Vec<std::num::NonZeroU8>>(numbers);
        reads_as::<Vec<Variant>>(numbers);
        reads_as::<Vec<char>>(numbers);
        reads_as::<Vec<String>>(numbers);
        reads_as::<Vec<Vec<u8>>>(numbers);
        reads_as::<Vec<()>>(numbers);
        reads_as::<Vec<Fields>>(numbers);
        reads_as::<ByteBuf>(numbers);
        reads_as::<[i16; 16]>(numbers);
        reads_as::<[i16; 15]>(numbers);
        reads_as::<[i16; 17]>(numbers);
        reads_as::<String>(numbers);
        reads_as::<Option<VecDeque<i16>>>(numbers);
        reads_as::<Untagged>(numbers);
        reads_as::<serde_json::Value>(numbers);
        reads_as::<serde::de::IgnoredAny>(numbers);
        reads_as::<u8>(numbers);
        reads_as::<bool>(numbers);
        reads_as::<Fields>(numbers);
        reads_as::<Changed>(numbers);
    }
    check(&vec![1_u8; 16]);
    check(&vec![200_u8; 16]);
    check(&vec![0_usize; 16]);
    check(&vec![300_u64; 16]);
    check(&vec![u64::MAX; 16]);
    check(&vec![1_i8; 16]);
    check(&vec![-1_i32; 16]);
    check(&vec![-129_i64; 16]);
    check(&(-8_i64..8).map(|x| x << 40).collect::<Vec<_>>());
    check(&vec![i64::MAX; 16]);
    check(&vec![1.0_f32; 16]);
    check(&vec![0.1_f64; 16]);
    check(&vec![true; 16]);
    assert_eq!(decode::<Changed>(&encode(&vec![1_u8; 16]).unwrap()).unwrap().0, [11; 16]);
}

/// Sequences whose lengths are unknown or wrong, and others that are not packed.
#[test]
fn any_iterator_over_numbers_arrives() {
    struct Sequence<F>(F);
    impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Sequence<F> {
        fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            serializer.collect_seq((self.0)())
        }
    }
    struct Hinted<I>(I, usize);
    impl<I: Iterator> Iterator for Hinted<I> {
        type Item = I::Item;
        fn next(&mut self) -> Option<I::Item> {
            self.0.next()
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (self.1, Some(self.1))
        }
    }
    fn check<I: Iterator<Item: Serialize>>(of: impl Fn() -> I, expected: &[u16]) {
        let bytes = encode(&(Sequence(of), "after")).unwrap();
        let arrived: (Vec<u16>, String) = decode(&bytes).unwrap();
        assert_eq!((&arrived.0[..], &arrived.1[..]), (expected, "after"));
    }
    for len in [0, 1, 15, 16, 17, 511, 512, 513, 1_024, 2_000] {
        let numbers: Vec<u16> = (0..len).collect();
        check(|| numbers.iter(), &numbers);
        check(|| numbers.iter().copied(), &numbers);
        check(|| numbers.iter().map(|x| Box::new(*x)), &numbers);
        check(|| numbers.iter().filter(|_| true), &numbers);
        check(|| numbers.iter().map(Newtype), &numbers);
        for hint in [0, 1, 15, 16, 1_000, 3_000] {
            check(|| Hinted(numbers.iter(), hint), &numbers);
        }
        let bytes: Vec<u8> = numbers.iter().map(|x| *x as u8).collect();
        let expected: Vec<u16> = bytes.iter().map(|x| u16::from(*x)).collect();
        for hint in [0, 1, 15, 16, 1_000, 3_000] {
            check(|| Hinted(bytes.iter(), hint), &expected);
        }
    }
    struct OneByOne(u8);
    impl Serialize for OneByOne {
        fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            let mut list = serializer.serialize_seq(None)?;
            (0..self.0).try_for_each(|number| list.serialize_element(&number))?;
            list.end()
        }
    }
    assert_eq!(decode::<Vec<u8>>(&encode(&OneByOne(20)).unwrap()).unwrap().len(), 20);
}

/// The names of types decide what is packed. These have the names of numbers.
#[test]
fn a_type_with_the_name_of_a_number_is_not_one() {
    #[allow(non_camel_case_types)]
    mod user {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(super) struct f64(pub(super) String);
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(super) struct u8(pub(super) u16);
    }
    arrives(&vec![user::f64("text".to_owned()); 20]);
    arrives(&vec![user::u8(1_000); 20]);
    assert_eq!(encode(&vec![user::u8(1); 20]).unwrap()[0], 0xdc);
}

#[test]
fn floats_arrive_bit_by_bit() {
    let bits = [0x7ff0_0000_0000_0001, u64::MAX, 1 << 63, 1, 0x7ff8_0000_0000_0005];
    let numbers: Vec<_> = bits.iter().cycle().take(600).map(|bits| f64::from_bits(*bits)).collect();
    let arrived: Vec<f64> = decode(&encode(&numbers).unwrap()).unwrap();
    assert!(arrived.iter().zip(&numbers).all(|(one, other)| one.to_bits() == other.to_bits()));
    let numbers = vec![f32::from_bits(0x7fa0_0001); 16];
    let arrived: VecDeque<f32> = decode(&encode(&numbers).unwrap()).unwrap();
    assert!(arrived.iter().all(|number| number.to_bits() == 0x7fa0_0001));
}

#[test]
fn the_depth_limit_counts_runs() {
    // The first level is the value itself.
    let check = || {
        let run = encode(&[7_u8; 16][..]).unwrap();
        let nested = |levels: usize| [&vec![0x91; levels][..], &run].concat();
        assert!(decode::<serde::de::IgnoredAny>(&nested(1_022)).is_ok());
        assert!(decode::<serde::de::IgnoredAny>(&nested(1_023)).is_err());
    };
    // The stack of a main thread.
    std::thread::Builder::new().stack_size(8 << 20).spawn(check).unwrap().join().unwrap();
}

#[test]
fn the_length_of_a_run_reserves_no_memory() {
    for kind in [0xc3, 0xca, 0xcb, 0xcc, 0xcf, 0xd3] {
        let huge = [0xc1, kind, 0xff, 0xff, 0xff, 0xff, 1];
        assert!(decode::<Vec<u8>>(&huge).is_err());
        assert!(decode::<Vec<u64>>(&huge).is_err());
        assert!(decode::<Vec<Option<f64>>>(&huge).is_err());
        assert!(decode::<ByteBuf>(&huge).is_err());
    }
}
