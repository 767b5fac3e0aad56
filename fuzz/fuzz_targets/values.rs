//! Any bytes decode to an error, or to a value that survives another encoding and decoding.

#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use fiber_values::codec;
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

#[derive(Serialize, Deserialize)]
enum Value {
    Unit,
    Deep(Option<Option<Option<()>>>),
    Numbers(i8, u16, i64, u128, f32, f64, char),
    Struct { text: Option<String>, bytes: ByteBuf, rest: Option<Rc<Value>> },
    List(Vec<Value>),
    Runs { bytes: Vec<u8>, floats: Option<Vec<f64>>, integers: VecDeque<i64>, flags: Vec<bool> },
    Entries(BTreeMap<Option<Option<u8>>, Value>),
    Tagged(Tagged),
    Untagged(Vec<Untagged>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "tag")]
enum Tagged {
    Unit,
    Struct { deep: Option<Option<u8>>, list: Vec<Option<()>> },
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Deep(Option<Option<u64>>),
    Text(Option<Option<String>>),
    Run(Vec<u16>),
    List(Vec<Untagged>),
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = codec::decode::<Value>(bytes) else { return };
    let sent = codec::encode(&value).expect("a decoded value encodes");
    let arrived: Value = codec::decode(&sent).expect("an encoded value decodes");
    assert_eq!(codec::encode(&arrived).expect("a decoded value encodes"), sent);
});
