//! Encodes and decodes values beside rmp-serde: `cargo bench -p fiber-values --bench codec`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use fiber_values::codec::{decode, encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Point {
    x: f64,
    y: f64,
    id: u64,
    name: String,
    visible: bool,
    layer: Option<u32>,
}

#[derive(Serialize, Deserialize)]
enum Event {
    Started,
    Moved(u32),
    Named { at: i64, name: String },
    Ended(u8, u16),
}

/// The bytes that a measurement encodes or decodes.
const BYTES: usize = 20_000_000;

/// Measurements of which the fastest counts.
const RUNS: usize = 7;

fn main() {
    println!("{:<10}{:>20}{:>12}{:>20}{:>12}", "", "encode", "rmp-serde", "decode", "rmp-serde");
    let point = Point {
        x: 1.5,
        y: 2.5,
        id: 70_000,
        name: "hello".to_owned(),
        visible: true,
        layer: Some(7),
    };
    row("struct", &point);
    row("structs", &vec![point; 100]);
    let event = |i: u32| match i % 4 {
        0 => Event::Started,
        1 => Event::Moved(i),
        2 => Event::Named { at: -1000 * i64::from(i), name: "name".to_owned() },
        _ => Event::Ended(i as u8, 300 * i as u16),
    };
    row("enums", &(0..100).map(event).collect::<Vec<_>>());
    row("map", &(0..100).map(|i| (format!("key {i}"), 1000 * i)).collect::<BTreeMap<_, u32>>());
    row("tuple", &(1_u64 << 40, -5, 0.5));
    row("pairs", &(0..100).map(|i| (100_000 * i, i)).collect::<Vec<(u64, u64)>>());
    row("options", &(0..100).map(|i| (i % 3 == 0).then_some(i)).collect::<Vec<Option<u32>>>());
    row("texts", &(0..100).map(|i| format!("text {i}")).collect::<Vec<_>>());
    row("floats", &vec![1.5; 1000]);
    row("integers", &(0..1000).collect::<Vec<u64>>());
}

/// Prints the time of each step in nanoseconds, and what part of rmp-serde's time it takes.
fn row<T: Serialize + DeserializeOwned>(name: &str, value: &T) {
    let by_rmp_serde = |value: &T| {
        let mut bytes = Vec::new();
        let mut serializer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        value.serialize(&mut serializer).expect("the value is plain");
        bytes
    };
    let (ours, theirs) = (encode(value).expect("the value is plain"), by_rmp_serde(value));
    let times = BYTES / (theirs.len() + 40);
    let encoded = fastest(times, || encode(black_box(value)).is_ok());
    let encoded_there = fastest(times, || by_rmp_serde(black_box(value)).len());
    let decoded = fastest(times, || decode::<T>(black_box(&ours)).is_ok());
    let decoded_there = fastest(times, || rmp_serde::from_slice::<T>(black_box(&theirs)).is_ok());
    println!(
        "{name:<10}{encoded:>17.1} ns{:>12.2}{decoded:>17.1} ns{:>12.2}",
        encoded / encoded_there,
        decoded / decoded_there,
    );
}

/// Returns the nanoseconds that a call takes.
fn fastest<R>(times: usize, call: impl Fn() -> R) -> f64 {
    let run = |_| {
        let start = Instant::now();
        (0..times).for_each(|_| drop(black_box(call())));
        start.elapsed().as_secs_f64() * 1e9 / times as f64
    };
    (0..RUNS).map(run).fold(f64::MAX, f64::min)
}
