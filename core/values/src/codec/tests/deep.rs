//! Values of many levels.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::*;
use crate::codec::deep::{MARK, MOST_LEVELS, UNMARKED_LEVELS};

/// Makes a value of as many levels, each around the one before.
fn nested<T>(levels: usize, end: T, around: impl Fn(T) -> T) -> T {
    (0..levels).fold(end, |value, _| around(value))
}

macro_rules! lists {
    ($($name:ident $(#[$form:meta])?;)*) => {
        $(#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        $(#[$form])?
        enum $name {
            End,
            More { number: u32, next: Box<$name> },
        }

        impl $name {
            fn of(levels: usize) -> $name {
                nested(levels, $name::End, |next| $name::More { number: 7, next: Box::new(next) })
            }
        })*
    };
}

lists! {
    External;
    Internal #[serde(tag = "kind")];
    Adjacent #[serde(tag = "kind", content = "content")];
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum List {
    End,
    More(u32, Box<List>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    End,
    More((u32, Box<Untagged>)),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Node {
    number: Option<u64>,
    children: Vec<Node>,
    #[serde(flatten)]
    others: std::collections::BTreeMap<String, u64>,
}

#[test]
fn values_of_all_levels_arrive_on_the_stack_of_any_thread() {
    fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) {
        let bytes = encode(&value).unwrap();
        assert!(bytes.starts_with(&MARK));
        assert!(decode::<T>(&bytes).unwrap() == value);
    }
    let check_all = || {
        // The end of an enum with `content` has a level of its own.
        let levels = usize::from(MOST_LEVELS);
        check(nested(levels, List::End, |list| List::More(5, Box::new(list))));
        check(External::of(levels));
        check(Internal::of(levels - 1));
        check(Adjacent::of(levels / 2 - 1));
        check(nested(levels, Untagged::End, |list| Untagged::More((5, Box::new(list)))));
        let node = |children| Node { number: None, children, others: [("x".into(), 1)].into() };
        check(nested(levels / 2 - 1, node(Vec::new()), |child| node(vec![child])));
    };
    // Such as a program's own: of 2 MiB.
    std::thread::spawn(check_all).join().unwrap();
}

#[test]
fn a_value_of_more_levels_is_refused_where_it_is_written() {
    let list = nested(2000, List::End, |list| List::More(5, Box::new(list)));
    let error = encode(&list).unwrap_err().to_string();
    assert!(error.contains("depth limit exceeded"), "{error}");
}

#[test]
fn only_deep_values_are_marked() {
    let lists = |levels: u16| {
        encode(&nested(levels.into(), List::End, |list| List::More(5, Box::new(list)))).unwrap()
    };
    assert!(!lists(UNMARKED_LEVELS).starts_with(&MARK));
    let marked = lists(UNMARKED_LEVELS + 1);
    assert!(marked.starts_with(&MARK));
    assert!(decode::<IgnoredAny>(&marked).is_ok());
    let mut after_others = vec![1];
    append(&mut after_others, &decode::<List>(&marked).unwrap()).unwrap();
    assert_eq!(after_others[1..], marked);
    let value = EncodedValue { bytes: marked.into(), blobs: Blobs::default() };
    assert!(value.alone() == value);
}
