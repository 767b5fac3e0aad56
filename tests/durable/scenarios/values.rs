//! Small and large values, as arguments and as results.

use std::collections::BTreeMap;

use fiber::{Array, Result};
use fiber_test_support::scenario;

use super::{durable_pool, note};

fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(7, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Passes arrays, texts and numbers of many sizes, and gets as many back.
#[scenario("values")]
fn values() -> Result<()> {
    let pool = durable_pool()?;
    let sizes = [0, 1, 31, 1000, 5_000, 25_000, 40_000, 200_000];
    let arrays = sizes.map(|size| Array::from((0..size).map(f64::from).collect::<Vec<_>>()));
    let add = |array: Array<f64>| {
        note(format!("array {}", array.len()));
        array.iter().map(|x| x + 1.0).collect::<Array<f64>>()
    };
    let results = pool.map(add, arrays).wait()?;
    for (size, result) in sizes.into_iter().zip(&results) {
        assert!((0..size).map(|x| f64::from(x) + 1.0).eq(result.iter().copied()), "{size}");
    }
    println!(
        "arrays {}",
        digest(results.iter().flat_map(|array| array[..].iter().map(|x| *x as u8)))
    );
    let texts = sizes.map(|size| "é".repeat(size as usize));
    let double = |text: String| {
        note(format!("text {}", text.len()));
        format!("{text}{text}")
    };
    let results = pool.map(double, texts.clone()).wait()?;
    assert!(texts.iter().zip(&results).all(|(text, result)| format!("{text}{text}") == *result));
    println!("texts {}", digest(results.iter().flat_map(|text| text.bytes())));
    let mixed = sizes.map(|size| {
        let numbers: Vec<u64> = (0..size as u64).collect();
        (Array::from(vec![size; 20_000]), numbers, BTreeMap::from([(size, "x".repeat(40_000))]))
    });
    let first = |array: Array<i32>, numbers: Vec<u64>, texts: BTreeMap<i32, String>| {
        note(format!("mixed {}", numbers.len()));
        (array.clone(), numbers.len(), texts.len(), array)
    };
    for ((array, numbers, _), result) in mixed.clone().into_iter().zip(pool.imap(first, mixed)) {
        let (one, count, 1, other) = result? else { panic!("there is one text") };
        assert_eq!((&one, &other, count), (&array, &array, numbers.len()));
    }
    println!("recorded {}", pool.stats().tasks.recorded);
    Ok(())
}
