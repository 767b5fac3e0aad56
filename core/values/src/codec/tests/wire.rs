//! Bytes on the wire: rmp-serde's, malformed ones, and the limits.

use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Deserialize, Serializer};
use serde_bytes::ByteBuf;

use super::*;

#[test]
fn an_option_is_marked_only_around_nil() {
    assert_eq!(encode(&None::<Option<u8>>).unwrap(), [0xc0]);
    assert_eq!(encode(&Some(None::<u8>)).unwrap(), [0xc1, 0xc0]);
    assert_eq!(encode(&Some(Some(()))).unwrap(), [0xc1, 0xc1, 0xc0]);
    assert_eq!(encode(&Some(Some(1_u8))).unwrap(), [1]);
    assert_eq!(encode(&Some(Unit)).unwrap(), [0x90]);
    assert_eq!(encode(&Some((None::<u8>, Some(())))).unwrap(), [0x92, 0xc0, 0xc1, 0xc0]);
}

/// A sequence that declares a wrong length.
struct Miscounted {
    declared: usize,
    given: u16,
}

impl Serialize for Miscounted {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.declared))?;
        (0..self.given).try_for_each(|n| list.serialize_element(&n))?;
        list.end()
    }
}

struct Unknown(u16);

impl Serialize for Unknown {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        (0..self.0).try_for_each(|n| map.serialize_entry(&n, &Some(Some(()))))?;
        map.end()
    }
}

struct MiscountedFields;

impl Serialize for MiscountedFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("MiscountedFields", 5)?;
        fields.serialize_field("one", &Some(()))?;
        fields.end()
    }
}

#[test]
fn unknown_and_wrong_lengths_are_corrected() {
    for given in [0, 1, 15, 16, 300] {
        let numbers: Vec<_> = (0..given).collect();
        for declared in [0, 3, 16, 70_000] {
            let value = (Miscounted { declared, given }, "after");
            assert_eq!(
                encode(&value).unwrap(),
                by_rmp_serde(&(&numbers, "after")),
                "{declared} for {given}"
            );
        }
        let map: BTreeMap<_, _> = numbers.iter().map(|n| (*n, Some(Some(())))).collect();
        assert_eq!(encode(&(Unknown(given), "after")).unwrap(), encode(&(map, "after")).unwrap());
    }
    let unknown = std::iter::repeat_n(7, 5).filter(|n| *n > 0);
    let mut out = vec![1, 2, 3];
    super::encode::Serializer::new(&mut out).collect_seq(unknown).unwrap();
    assert_eq!(out, [1, 2, 3, 0x95, 7, 7, 7, 7, 7]);
    let read: (BTreeMap<String, Option<()>>, u8) =
        decode(&encode(&(MiscountedFields, 9)).unwrap()).unwrap();
    assert_eq!(read, (BTreeMap::from([("one".to_owned(), Some(()))]), 9));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "_ExtStruct")]
struct Extended((i8, ByteBuf));

#[test]
fn extensions_travel_as_with_rmp_serde() {
    for len in [0, 1, 2, 4, 8, 16, 17, 255, 256, 70_000] {
        for number in [-128, -1, 0, 127] {
            arrives(&(
                Extended((number, ByteBuf::from(vec![0xc0; len]))),
                Some(Some(Extended((number, ByteBuf::new())))),
            ));
        }
    }
    #[derive(Serialize)]
    #[serde(rename = "_ExtStruct")]
    struct Malformed(u8);
    assert!(matches!(encode(&Malformed(1)), Err(Error::Encode { .. })));
}

#[derive(Debug, Deserialize)]
enum Chain {
    #[allow(dead_code)]
    Link(Box<Chain>),
}

#[derive(Debug, Deserialize)]
#[allow(dead_code)]
struct Endless(Option<Box<Endless>>);

#[test]
fn deep_values_are_refused_in_every_form() {
    fn check<T: DeserializeOwned + Debug>(part: &[u8]) {
        let error = decode::<T>(&part.repeat(1_000_000)).unwrap_err().to_string();
        assert!(error.contains("depth limit exceeded"), "{error}");
    }
    let checks = || {
        check::<Chain>(b"\x81\xa4Link");
        check::<Endless>(&[0xc1]);
        check::<IgnoredAny>(&[0x91]);
        check::<IgnoredAny>(&[0x81, 0x01]);
        check::<IgnoredAny>(&[0xc1]);
    };
    // The stack of a main thread; without optimization a level takes up to 3 KB.
    std::thread::Builder::new().stack_size(8 << 20).spawn(checks).unwrap().join().unwrap();
}

#[test]
fn bytes_after_a_value_are_refused() {
    let error = decode::<u8>(&[1, 2]).unwrap_err();
    assert!(error.to_string().contains("1 bytes are left"), "{error}");
}

#[test]
fn a_claimed_length_reserves_no_memory() {
    // Types reserve memory for the claimed number of elements.
    struct Reserved(usize);
    impl<'de> Deserialize<'de> for Reserved {
        fn deserialize<D: serde::Deserializer<'de>>(
            deserializer: D,
        ) -> std::result::Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Reserved;
                fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    formatter.write_str("a list")
                }
                fn visit_seq<A: serde::de::SeqAccess<'de>>(
                    self,
                    mut list: A,
                ) -> std::result::Result<Reserved, A::Error> {
                    let reserved = list.size_hint();
                    while list.next_element::<u8>()?.is_some() {}
                    Ok(Reserved(reserved.unwrap()))
                }
            }
            deserializer.deserialize_seq(Visitor)
        }
    }
    assert_eq!(decode::<Reserved>(&[0xdd, 0, 0, 0, 2, 1, 2]).unwrap().0, 2);
    for huge in [
        &[0xdd, 0xff, 0xff, 0xff, 0xff, 1][..],
        &[0xdf, 0xff, 0xff, 0xff, 0xff, 1],
        &[0xdb, 0xff, 0xff, 0xff, 0xff, 1],
        &[0xc6, 0xff, 0xff, 0xff, 0xff, 1],
        &[0xc9, 0xff, 0xff, 0xff, 0xff, 1],
    ] {
        assert!(decode::<Reserved>(huge).is_err());
        assert!(decode::<Vec<u64>>(huge).is_err());
        assert!(decode::<String>(huge).is_err());
        assert!(decode::<ByteBuf>(huge).is_err());
    }
}

/// A type with a variant for each form of MessagePack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Everything {
    Unit,
    Numbers(i8, u64, i128, f32, f64, bool, char),
    Texts { text: String, bytes: ByteBuf, deep: Option<Option<()>> },
    Runs(Vec<u8>, Option<Vec<f64>>, VecDeque<i64>),
    Many(Vec<Everything>),
    Entries(BTreeMap<Option<u8>, Everything>),
    Extended(Extended),
}

fn everything() -> impl Strategy<Value = Everything> {
    let leaf = prop_oneof![
        Just(Everything::Unit),
        any::<(i8, u64, i128, f32, f64, bool, char)>()
            .prop_map(|(a, b, c, d, e, f, g)| Everything::Numbers(a, b, c, d, e, f, g)),
        any::<(String, Vec<u8>, Option<Option<()>>)>()
            .prop_map(|(text, bytes, deep)| Everything::Texts { text, bytes: bytes.into(), deep }),
        (vec(any::<u8>(), 0..40), any::<Option<()>>(), vec(any::<i64>(), 0..40)).prop_map(
            |(bytes, floats, integers)| {
                let floats = floats.map(|()| integers.iter().map(|x| *x as f64).collect());
                Everything::Runs(bytes, floats, integers.into())
            }
        ),
        any::<(i8, Vec<u8>)>()
            .prop_map(|(number, bytes)| Everything::Extended(Extended((number, bytes.into())))),
    ];
    leaf.prop_recursive(4, 40, 20, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Everything::Many),
            proptest::collection::btree_map(any::<Option<u8>>(), inner, 0..20)
                .prop_map(Everything::Entries),
        ]
    })
}

proptest! {
    #[test]
    fn nested_values_arrive_and_any_part_of_one_is_refused(
        value in everything(),
        cut in any::<prop::sample::Index>(),
    ) {
        arrives(&value);
        let bytes = encode(&value).unwrap();
        prop_assert!(decode::<Everything>(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn other_bytes_are_an_error_or_a_value(
        mut value in everything().prop_map(|value| encode(&value).unwrap()),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let at = at.index(value.len());
        value[at] = byte;
        if let Ok(read) = decode::<Everything>(&value) {
            encode(&read).unwrap();
        }
        let _ = decode::<IgnoredAny>(&value);
    }
}
