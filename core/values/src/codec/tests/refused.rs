//! Values that serde can't carry are refused, when sent or received, with an error that names the
//! type.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tag")]
enum Internal {
    NewtypeOfOption(Option<u8>),
    NewtypeOfNumber(u8),
    NewtypeOfList(Vec<u8>),
    Struct { wide: i128 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Wide(i128),
    UnitStruct(Unit),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flattened {
    field: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, u128>,
}

/// Checks that the error for `value` names its type.
fn refused<T: Serialize + DeserializeOwned + Debug>(value: &T) {
    let error = encode(value).and_then(|bytes| decode::<T>(&bytes)).unwrap_err().to_string();
    assert!(error.contains(std::any::type_name::<T>()), "{error}");
}

#[test]
fn newtypes_without_fields_are_refused_in_internally_tagged_enums() {
    refused(&Internal::NewtypeOfOption(None));
    refused(&Internal::NewtypeOfOption(Some(1)));
    refused(&Internal::NewtypeOfNumber(1));
    refused(&Internal::NewtypeOfList(vec![1]));
}

#[test]
fn numbers_of_128_bits_are_refused_where_serde_buffers() {
    refused(&Internal::Struct { wide: -1 });
    refused(&Untagged::Wide(1 << 100));
    refused(&Flattened { field: 1, rest: BTreeMap::from([("wide".to_owned(), 1)]) });
}

/// Serde's words would blame the type.
#[test]
fn the_error_of_a_wide_number_that_serde_buffers_names_the_remedy() {
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "tag")]
    enum Tagged {
        Wide { number: u128 },
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Signed {
        number: i128,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Outer {
        #[serde(flatten)]
        inner: Signed,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "tag", content = "content")]
    enum Adjacent {
        Wide { number: u128 },
    }

    #[track_caller]
    fn remedied<T: Serialize + DeserializeOwned + Debug>(value: &T) {
        let error = decode::<T>(&encode(value).unwrap()).unwrap_err().to_string();
        assert!(error.contains("128 bits") && error.contains("`content`"), "{error}");
        assert!(!error.contains("match each other"), "{error}");
    }
    remedied(&Tagged::Wide { number: 1 });
    remedied(&Outer { inner: Signed { number: -1 } });
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Bare {
        Wide { number: u128 },
    }
    let bare = decode::<Bare>(&encode(&Bare::Wide { number: 1 }).unwrap()).unwrap_err().to_string();
    assert!(bare.contains("(an untagged enum holds no numbers of 128 bits"), "{bare}");
    let remedy = Adjacent::Wide { number: 1 << 100 };
    assert_eq!(decode::<Adjacent>(&encode(&remedy).unwrap()).unwrap(), remedy);
}

#[test]
fn a_unit_struct_in_an_untagged_enum_is_refused() {
    refused(&vec![Untagged::UnitStruct(Unit)]);
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    refused(&Flattened { field: 1, rest: BTreeMap::from([("field".to_owned(), 2)]) });
}

#[test]
fn values_without_a_serialized_form_are_refused_at_the_sender() {
    assert!(matches!(encode(&(UNIX_EPOCH - Duration::from_secs(1))), Err(Error::Encode { .. })));
    assert!(matches!(encode(Path::new(OsStr::from_bytes(&[0xff]))), Err(Error::Encode { .. })));
}

#[test]
fn a_wrong_type_is_named() {
    let error = decode::<Flattened>(&encode("text").unwrap()).unwrap_err();
    assert!(error.to_string().contains("Flattened"), "{error}");
}

/// Serde itself does not restore these values, with any format. docs/semantics.md lists them.
#[test]
fn values_that_serde_itself_changes_arrive_as_documented() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Ambiguous {
        First(f64),
        Second(u8),
    }
    let arrived: Ambiguous = decode(&encode(&Ambiguous::Second(1)).unwrap()).unwrap();
    assert_eq!(arrived, Ambiguous::First(1.0));

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Optional {
        #[serde(flatten)]
        rest: Option<BTreeMap<String, u8>>,
    }
    let arrived: Optional = decode(&encode(&Optional { rest: None }).unwrap()).unwrap();
    assert_eq!(arrived, Optional { rest: Some(BTreeMap::new()) });

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Both {
        #[serde(flatten)]
        first: Optional,
        #[serde(flatten)]
        second: BTreeMap<String, u8>,
    }
    let rest = BTreeMap::from([("a".to_owned(), 1)]);
    let both = Both { first: Optional { rest: None }, second: rest.clone() };
    let arrived: Both = decode(&encode(&both).unwrap()).unwrap();
    assert_eq!(arrived, Both { first: Optional { rest: Some(rest.clone()) }, second: rest });
}

#[test]
fn an_error_says_what_was_found() {
    #[track_caller]
    fn found<T: DeserializeOwned + Debug>(value: &impl Serialize, found: &str) {
        let error = decode::<T>(&encode(value).unwrap()).unwrap_err().to_string();
        assert!(error.contains(&format!("invalid type: {found}, expected ")), "{error}");
    }
    let list = vec![1_u8; 20];
    found::<u32>(&"text", "string \"text\"");
    found::<u32>(&Some(Some(())), "Option value");
    found::<bool>(&7, "integer `7`");
    found::<String>(&-300, "integer `-300`");
    found::<f64>(&true, "boolean `true`");
    found::<()>(&1.5, "floating point `1.5`");
    found::<Vec<u8>>(&(), "unit value");
    found::<Vec<u8>>(&BTreeMap::from([(1, 2)]), "map");
    found::<BTreeMap<u8, u8>>(&(1, 2), "sequence");
    found::<BTreeMap<u8, u8>>(&list, "sequence");
    found::<Flattened>(&serde_bytes::Bytes::new(&list[..1]), "byte array");
    found::<(u8, u8)>(&Extension((1, serde_bytes::Bytes::new(b"x"))), "newtype struct");
}

/// Formats with types of their own, such as bincode, call just the method of the type.
#[test]
fn a_visitor_of_one_method_is_enough_for_a_byte() {
    #[derive(Debug, PartialEq)]
    struct Byte(u8);

    impl Serialize for Byte {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u8(self.0)
        }
    }

    impl<'de> Deserialize<'de> for Byte {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Byte, D::Error> {
            struct Visitor;

            impl serde::de::Visitor<'_> for Visitor {
                type Value = Byte;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a byte")
                }

                fn visit_u8<E>(self, byte: u8) -> Result<Byte, E> {
                    Ok(Byte(byte))
                }
            }

            deserializer.deserialize_u8(Visitor)
        }
    }

    for byte in [0, 127, 128, 255] {
        assert_eq!(decode::<Byte>(&encode(&Byte(byte)).unwrap()).unwrap(), Byte(byte));
    }
}
