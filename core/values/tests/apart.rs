//! Large texts, byte strings and lists of numbers in a value are copied into shared memory, and
//! arrive equal, whatever type reads them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

use fiber_core::value_memory;
use fiber_values::blob::{MIN_LEN, arena};
use fiber_values::{Array, codec};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Numbers(Vec<i32>),
    Text(String),
    Bytes(ByteBuf),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "_ExtStruct")]
struct Extended((i8, ByteBuf));

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Value {
    text: Option<Option<String>>,
    bytes: (Vec<u8>, Option<ByteBuf>),
    floats: Option<Vec<f64>>,
    integers: VecDeque<u64>,
    array: Array<f32>,
    untagged: Vec<Untagged>,
    extended: Extended,
    #[serde(flatten)]
    flat: BTreeMap<String, Vec<bool>>,
    small: Vec<u8>,
}

fn value(len: usize) -> Value {
    Value {
        text: Some(Some("ä".repeat(len))),
        bytes: (vec![200; len], Some(ByteBuf::from(vec![3; len]))),
        floats: Some(vec![0.1; len]),
        integers: (0..len as u64).collect(),
        array: vec![0.5; len].into(),
        untagged: vec![Untagged::Numbers(vec![i32::MIN; len]), Untagged::Text("x".repeat(len))],
        extended: Extended((7, ByteBuf::from(vec![1; len]))),
        flat: [("flag".to_owned(), vec![true; len])].into(),
        small: vec![1; 100],
    }
}

fn share() {
    value_memory::set_limit(1 << 30);
    arena::enable(true);
}

#[test]
fn an_encoding_keeps_no_memory_of_pieces() {
    fn check(value: &impl Serialize) {
        let mut encoded = Vec::new();
        let blobs = codec::append_apart(&mut encoded, value).unwrap();
        assert_eq!((blobs.len(), encoded.capacity() < 100), (1, true), "{}", encoded.capacity());
    }
    share();
    check(&vec![1_u8; 100_000]);
    check(&vec![1_u64; 100_000]);
    check(&(0..100_000).collect::<VecDeque<u32>>());
    check(&"x".repeat(100_000));
}

#[test]
fn large_pieces_are_apart_and_arrive() {
    share();
    for len in [0, 20, MIN_LEN - 1, MIN_LEN, 100_000] {
        let value = value(len);
        let mut encoded = Vec::new();
        let blobs = codec::append_apart(&mut encoded, &value).unwrap();
        assert_eq!(codec::decode_with::<Value>(&encoded, &blobs).unwrap(), value, "{len}");
        codec::decode_with::<IgnoredAny>(&encoded, &blobs).unwrap();
        if len < MIN_LEN / 8 {
            assert!(blobs.is_empty());
            assert_eq!(codec::decode::<Value>(&encoded).unwrap(), value);
        } else if len >= MIN_LEN {
            // The extension is not.
            assert!(encoded.len() < len + 1_000, "{} bytes for {len}", encoded.len());
            let error = codec::decode::<Value>(&encoded).unwrap_err().to_string();
            assert!(error.contains("did not come with the value"), "{error}");
        }
        let together = codec::encode(&value).unwrap();
        assert_eq!(codec::decode::<Value>(&together).unwrap(), value);
    }
}

#[test]
fn a_piece_reads_as_any_type_that_it_reads_as_within_the_value() {
    share();
    fn reads_as<T: DeserializeOwned + Debug>(value: &impl Serialize) {
        let mut apart = Vec::new();
        let blobs = codec::append_apart(&mut apart, value).unwrap();
        assert_eq!(blobs.len(), 1);
        let text = |read: fiber_core::Result<T>| {
            read.map_or("an error".to_owned(), |value| format!("{value:?}"))
        };
        let apart = text(codec::decode_with(&apart, &blobs));
        let together = text(codec::decode(&codec::encode(value).unwrap()));
        assert_eq!(apart, together, "{}", std::any::type_name::<T>());
    }
    fn check(value: &impl Serialize) {
        reads_as::<Vec<u8>>(value);
        reads_as::<Vec<i64>>(value);
        reads_as::<VecDeque<f64>>(value);
        reads_as::<Vec<Option<u16>>>(value);
        reads_as::<ByteBuf>(value);
        reads_as::<String>(value);
        reads_as::<Box<str>>(value);
        reads_as::<Option<Option<String>>>(value);
        reads_as::<Untagged>(value);
        reads_as::<serde_json::Value>(value);
        reads_as::<IgnoredAny>(value);
        reads_as::<(u8, u8)>(value);
        reads_as::<u8>(value);
        reads_as::<char>(value);
        reads_as::<BTreeMap<String, u8>>(value);
    }
    check(&vec![7_u8; MIN_LEN]);
    check(&Some(vec![-300_i64; MIN_LEN]));
    check(&vec![1.5_f64; MIN_LEN]);
    check(&vec![false; MIN_LEN]);
    check(&ByteBuf::from(vec![7; MIN_LEN]));
    check(&Some(Some("x".repeat(MIN_LEN))));
}

#[test]
fn malformed_pieces_are_refused() {
    share();
    let blobs = |len| {
        let mut encoded = Vec::new();
        codec::append_apart(&mut encoded, &vec![0xff_u8; len]).unwrap()
    };
    let odd = blobs(MIN_LEN + 1);
    for bytes in [
        &[0xc1, 0xdd, 0xcb, 0, 0, 0, 0][..],
        &[0xc1, 0xdd, 0xcc, 0, 0, 0, 1],
        &[0xc1, 0xdd, 0x05, 0, 0, 0, 0],
        &[0xc1, 0xdd],
        &[0xc1, 0xdb, 0, 0, 0, 0],
        &[0xc1, 0xdb, 0, 0],
        &[0xc1, 0xc6, 0xff, 0xff, 0xff, 0xff],
    ] {
        assert!(codec::decode_with::<Vec<f64>>(bytes, &odd).is_err(), "{bytes:x?}");
        assert!(codec::decode_with::<String>(bytes, &odd).is_err(), "{bytes:x?}");
        assert!(codec::decode_with::<IgnoredAny>(bytes, &odd).is_err(), "{bytes:x?}");
    }
}
