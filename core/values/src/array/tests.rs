use proptest::collection::vec;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::codec;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    weights: Option<Array<f64>>,
    flags: Vec<Array<bool>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Array(Array<u16>),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tag")]
enum Tagged {
    Array { array: Array<i128> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Value {
    numbers: Array<f32>,
    inner: Inner,
    untagged: Untagged,
    tagged: Tagged,
    #[serde(flatten)]
    flat: std::collections::BTreeMap<String, Array<u8>>,
}

fn value(len: usize) -> Value {
    let numbers: Array<f32> = (0..len).map(|x| x as f32).collect();
    Value {
        numbers: numbers.reshape(&[1, len]).unwrap(),
        inner: Inner {
            weights: Some(vec![0.5; len].into()),
            flags: vec![vec![true; len].into(), Array::default()],
        },
        untagged: Untagged::Array(vec![7; len].into()),
        tagged: Tagged::Array { array: vec![i128::MIN; len].into() },
        flat: [("a".to_string(), vec![1; len].into())].into(),
    }
}

#[test]
fn arrays_travel_in_any_value_in_the_encoding_and_apart() {
    for len in [0, 1, 7, 100, 70_000] {
        let value = value(len);
        let encoded = codec::encode(&value).unwrap();
        assert_eq!(codec::decode::<Value>(&encoded).unwrap(), value);

        let mut encoded = Vec::new();
        let blobs = codec::append_apart(&mut encoded, &value).unwrap();
        assert_eq!(codec::decode_with::<Value>(&encoded, &blobs).unwrap(), value);
        if len == 70_000 {
            assert_eq!(blobs.len(), 6, "the large arrays are apart");
            assert!(encoded.len() < 300, "{} bytes", encoded.len());
            assert!(codec::decode::<Value>(&encoded).is_err(), "its blobs are missing");
        } else {
            assert!(blobs.is_empty());
        }
    }
}

#[test]
fn an_array_of_another_type_is_refused_by_name() {
    let encoded = codec::encode(&Array::from([1.0f32])).unwrap();
    let error = codec::decode::<Array<f64>>(&encoded).unwrap_err().to_string();
    assert!(error.contains("an array of `f32` can't be read as one of `f64`"), "{error}");
    let mut encoded = codec::encode(&Array::from([true])).unwrap();
    *encoded.last_mut().unwrap() = 2;
    let error = codec::decode::<Array<bool>>(&encoded).unwrap_err().to_string();
    assert!(error.contains("`bool` does not have"), "{error}");
    assert!(Array::<u32>::from_bytes(Bytes::from_static(&[1, 2, 3])).is_err());
    assert!(Array::from([1, 2, 3]).reshape(&[2, 2]).is_err());
    assert!(Array::from([1, 2, 3]).reshape(&[usize::MAX, 2]).is_err());
}

#[test]
fn an_encoding_of_the_value_alone_leaves_shared_memory_out() {
    crate::blob::arena::enable(true);
    let value = (Array::from(vec![7u64; 10_000]), "x".repeat(50_000), vec![1.5; 10_000]);
    let mut alone = Vec::new();
    let blobs = codec::append_alone(&mut alone, &value).unwrap();
    assert_eq!(blobs.len(), 1, "only arrays have blobs");
    assert!(blobs[0].as_shared().is_none());
    let mut apart = Vec::new();
    assert_eq!(codec::append_apart(&mut apart, &value).unwrap().len(), 3, "with room for all");
    let back: (Array<u64>, String, Vec<f64>) = codec::decode_with(&alone, &blobs).unwrap();
    assert_eq!(back, value);
}

#[test]
fn clones_share_and_misaligned_bytes_are_copied() {
    let array = Array::from(vec![1u64, 2, 3]);
    assert_eq!(array.clone().as_ptr(), array.as_ptr());
    let bytes = Bytes::from(vec![0; 65]);
    for start in 0..8 {
        let array = Array::<u64>::from_bytes(bytes.slice(start..start + 56)).unwrap();
        assert_eq!(*array, [0; 7]);
    }
    assert_eq!(format!("{:?}", Array::from([1, 2])), "[1, 2]");
    assert_eq!(
        format!("{:?}", Array::from(vec![0u8; 9])),
        "Array([9] of u8, [0, 0, 0, 0, 0, 0, 0, 0] …)"
    );
}

#[test]
fn human_readable_formats_get_numbers() {
    let array = Array::from([1, 2, 3, 4]).reshape(&[2, 2]).unwrap();
    let text = serde_json::to_string(&array).unwrap();
    assert_eq!(text, r#"["i32",[2,2],[1,2,3,4]]"#);
    assert_eq!(serde_json::from_str::<Array<i32>>(&text).unwrap(), array);
}

proptest! {
    #[test]
    fn any_elements_arrive_bit_by_bit(
        elements in vec(any::<f64>(), 0..100),
        flags in vec(any::<bool>(), 0..100),
    ) {
        let sent = (Array::from(elements), Array::from(flags));
        let got: (Array<f64>, Array<bool>) = codec::decode(&codec::encode(&sent).unwrap()).unwrap();
        let bits = |array: &Array<f64>| array.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&got.0), bits(&sent.0));
        prop_assert_eq!(got.1, sent.1);
    }

    #[test]
    fn any_bytes_decode_to_an_array_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
        let _ = codec::decode::<Array<u32>>(&bytes);
        let _ = codec::decode::<Array<bool>>(&bytes);
        let blobs = vec![Blob::private(Bytes::from(bytes.clone()))].into();
        let _ = codec::decode_with::<Array<u32>>(&bytes, &blobs);
    }
}
