//! Enums in all of serde's representations arrive equal.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::{Unit, arrives};

type Deep = Option<Option<Option<u8>>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Inner {
    deep: Deep,
    unit: Option<Option<()>>,
    text: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum External {
    Unit,
    Newtype(Deep),
    NewtypeOfUnit(()),
    NewtypeOfUnitStruct(Unit),
    NewtypeOfStruct(Inner),
    Tuple(Deep, Option<()>),
    Struct { deep: Deep, unit: Option<()> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "content")]
enum Adjacent {
    Unit,
    Newtype(Deep),
    NewtypeOfUnit(()),
    NewtypeOfUnitStruct(Option<Unit>),
    NewtypeOfStruct(Inner),
    Tuple(Deep, Option<()>),
    Struct { deep: Deep, unit: Option<()> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tag")]
enum Internal {
    Unit,
    NewtypeOfUnit(()),
    NewtypeOfUnitStruct(Unit),
    NewtypeOfStruct(Inner),
    NewtypeOfMap(BTreeMap<String, Deep>),
    NewtypeOfEnum(Adjacent),
    Struct {
        deep: Deep,
        unit: Option<Option<()>>,
        list: Vec<Deep>,
        external: Option<External>,
        bytes: ByteBuf,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Unit,
    Newtype(Option<Option<Option<u8>>>),
    Struct { one: Deep, unit: Option<Option<()>>, name: String },
    Tuple(Deep, Option<Option<()>>),
    NewtypeOfText(Option<Option<String>>),
    NewtypeOfEnum(Option<Option<External>>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Flattened {
    first: u8,
    #[serde(flatten)]
    internal: Internal,
    #[serde(flatten)]
    adjacent: Adjacent,
}

fn inner() -> impl Strategy<Value = Inner> {
    any::<(Deep, Option<Option<()>>, Option<String>)>().prop_map(|(deep, unit, text)| Inner {
        deep,
        unit,
        text,
    })
}

fn external() -> impl Strategy<Value = External> {
    prop_oneof![
        Just(External::Unit),
        any::<Deep>().prop_map(External::Newtype),
        Just(External::NewtypeOfUnit(())),
        Just(External::NewtypeOfUnitStruct(Unit)),
        inner().prop_map(External::NewtypeOfStruct),
        any::<(Deep, Option<()>)>().prop_map(|(deep, unit)| External::Tuple(deep, unit)),
        any::<(Deep, Option<()>)>().prop_map(|(deep, unit)| External::Struct { deep, unit }),
    ]
}

fn adjacent() -> impl Strategy<Value = Adjacent> {
    prop_oneof![
        Just(Adjacent::Unit),
        any::<Deep>().prop_map(Adjacent::Newtype),
        Just(Adjacent::NewtypeOfUnit(())),
        any::<Option<()>>().prop_map(|unit| Adjacent::NewtypeOfUnitStruct(unit.map(|()| Unit))),
        inner().prop_map(Adjacent::NewtypeOfStruct),
        any::<(Deep, Option<()>)>().prop_map(|(deep, unit)| Adjacent::Tuple(deep, unit)),
        any::<(Deep, Option<()>)>().prop_map(|(deep, unit)| Adjacent::Struct { deep, unit }),
    ]
}

fn internal() -> impl Strategy<Value = Internal> {
    let fields =
        (any::<(Deep, Option<Option<()>>, Vec<Deep>, Vec<u8>)>(), proptest::option::of(external()));
    prop_oneof![
        Just(Internal::Unit),
        Just(Internal::NewtypeOfUnit(())),
        Just(Internal::NewtypeOfUnitStruct(Unit)),
        inner().prop_map(Internal::NewtypeOfStruct),
        proptest::collection::btree_map("[A-Z]*", any::<Deep>(), 0..20)
            .prop_map(Internal::NewtypeOfMap),
        fields.prop_map(|((deep, unit, list, bytes), external)| Internal::Struct {
            deep,
            unit,
            list,
            external,
            bytes: ByteBuf::from(bytes)
        }),
    ]
}

/// Values that fit no earlier variant: serde picks the first variant that fits.
fn untagged() -> impl Strategy<Value = Untagged> {
    prop_oneof![
        Just(Untagged::Unit),
        any::<Option<Option<u8>>>().prop_map(|deep| Untagged::Newtype(Some(deep))),
        any::<(Deep, Option<Option<()>>, String)>()
            .prop_map(|(one, unit, name)| Untagged::Struct { one, unit, name }),
        any::<(Deep, Option<Option<()>>)>().prop_map(|(deep, unit)| Untagged::Tuple(deep, unit)),
        any::<String>().prop_map(|text| Untagged::NewtypeOfText(Some(Some(text)))),
        any::<Deep>().prop_map(|deep| Untagged::NewtypeOfEnum(Some(Some(External::Newtype(deep))))),
    ]
}

proptest! {
    #[test]
    fn externally_tagged_enums_arrive(value in external(), key in external()) {
        arrives(&value);
        arrives(&BTreeMap::from([(key, Some(Some(value)))]));
    }

    #[test]
    fn adjacently_tagged_enums_arrive(value in adjacent()) {
        arrives(&value);
        arrives(&vec![Some(Some(value)), Some(None), None]);
    }

    #[test]
    fn internally_tagged_enums_arrive(
        value in internal(),
        list in proptest::collection::vec(internal(), 0..4),
    ) {
        arrives(&Some(value));
        arrives(&list);
    }

    #[test]
    fn untagged_enums_arrive(value in untagged()) {
        arrives(&value);
    }

    #[test]
    fn options_around_untagged_enums_arrive(value in any::<Option<Option<()>>>()) {
        arrives(&value.map(|inner| inner.map(|()| Untagged::Unit)));
    }

    #[test]
    fn flattened_enums_arrive(
        first in any::<u8>(),
        internal in internal(),
        adjacent in adjacent(),
    ) {
        match internal {
            // A flattened map takes the fields of the others; serde refuses a flattened unit.
            Internal::NewtypeOfMap(_)
            | Internal::NewtypeOfUnit(())
            | Internal::NewtypeOfUnitStruct(_) => {}
            internal => arrives(&Flattened { first, internal, adjacent }),
        }
    }
}

#[test]
fn an_enum_in_an_internally_tagged_one_arrives() {
    arrives(&Internal::NewtypeOfEnum(Adjacent::Newtype(Some(Some(None)))));
}
