//! Values that travel to tasks and back.

use std::time::Duration;

use fiber::Broadcast;
use fiber_test_support::tricky::{Tricky, tricky};
use serde::{Deserialize, Serialize};

use super::pool;

#[test]
fn without_try_a_result_is_a_value() {
    let check = |x: i32| if x > 0 { Ok(x) } else { Err("not positive".to_string()) };
    let results = pool(1).map(check, [1, -1]).wait().unwrap();
    assert_eq!(results, [Ok(1), Err("not positive".to_string())]);
}

#[test]
fn large_arguments_and_results_travel() {
    let reverse = |mut bytes: serde_bytes::ByteBuf| {
        bytes.reverse();
        bytes
    };
    let items: Vec<_> = (0..16u8)
        .map(|n| serde_bytes::ByteBuf::from(vec![n; (1 << 20) + usize::from(n)]))
        .collect();
    assert_eq!(pool(2).map(reverse, items.clone()).wait().unwrap(), items);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Reading {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    values: Vec<f32>,
}

#[test]
fn structures_with_skipped_fields_travel() {
    let echo = |reading: Reading| reading;
    let reading = || Reading { note: None, values: vec![1.5, -2.5] };
    assert_eq!(pool(1).apply(echo, reading()).wait().unwrap(), reading());
}

#[test]
fn a_broadcast_value_stays_while_tasks_refer_to_it() {
    let pool = pool(2);
    let table = pool.broadcast((0..1000u64).collect::<Vec<_>>()).unwrap();
    let read = |index: usize, table: Broadcast<Vec<u64>>| {
        // The call has taken all arguments by then, and dropped the iterator.
        std::thread::sleep(Duration::from_millis(20));
        table.get().map(|table| table[index])
    };
    // The iterator has the only handle.
    let sum: fiber::Result<u64> =
        pool.try_imap(read, (0..16).map(move |index| (index, table.clone()))).wait().sum();
    assert_eq!(sum.unwrap(), 120);
}

#[test]
fn a_broadcast_value_reaches_all_workers_and_later_ones() {
    let pool = pool(2);
    let table = pool.broadcast((0..1000u64).collect::<Vec<_>>()).unwrap();
    let read = |index: usize, table: Broadcast<Vec<u64>>| table.get().map(|table| table[index] + 1);
    let items = || {
        (0..100).map({
            let table = table.clone();
            move |index| (index, table.clone())
        })
    };
    let expected: Vec<_> = (1..=100).collect();
    assert_eq!(pool.try_map(read, items().collect::<Vec<_>>()).wait().unwrap(), expected);
    pool.scale(4).wait().unwrap();
    assert_eq!(pool.try_map(read, items().collect::<Vec<_>>()).wait().unwrap(), expected);
}

#[test]
fn nested_options_and_units_stay_distinct() {
    let pool = pool(2);
    assert_eq!(
        pool.apply(|x: Option<Option<u8>>, _: u8| x, (Some(None), 0)).wait().unwrap(),
        Some(None)
    );
    assert_eq!(pool.apply(|| Some(()), ()).wait().unwrap(), Some(()));
    let echo = |value: Tricky| value;
    assert_eq!(pool.apply(echo, tricky()).wait().unwrap(), tricky());
    let options = [None, Some(None), Some(Some(tricky()))];
    let echo = |value: Option<Option<Tricky>>| value;
    assert_eq!(pool.map(echo, options.clone()).wait().unwrap(), options);
    let items: Result<Vec<_>, _> = pool.imap(echo, options.clone()).wait().collect();
    assert_eq!(items.unwrap(), options);
    let values: Vec<_> =
        pool.try_map(|value: Option<()>| Ok::<_, String>(value), [None, Some(())]).wait().unwrap();
    assert_eq!(values, [None, Some(())]);
    let shared = pool.broadcast((options.clone(), tricky())).unwrap();
    let read = |shared: Broadcast<([Option<Option<Tricky>>; 3], Tricky)>| {
        shared.get().map(|shared| (*shared).clone())
    };
    assert_eq!(pool.try_apply(read, shared.clone()).wait().unwrap(), (options, tricky()));
}
