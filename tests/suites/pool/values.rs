//! Values that travel to tasks and back.

use std::time::Duration;

use fiber::Broadcast;
use fiber_test_support::tricky::{Tricky, tricky};

use super::pool;

#[test]
fn without_try_a_result_is_a_value() {
    let check = |x: i32| if x > 0 { Ok(x) } else { Err("not positive".to_string()) };
    let results = pool(1).map(check, [1, -1]).wait().unwrap();
    assert_eq!(results, [Ok(1), Err("not positive".to_string())]);
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
fn functions_take_the_value_of_their_call() {
    fn scaled(x: u64, y: u64, scale: &u64) -> Result<u64, String> {
        if x == 9 { Err("no nine".to_string()) } else { Ok((x + y) * scale) }
    }
    let pool = pool(2);
    let with = pool.retries(1).with(10_u64);
    assert_eq!(with.map(|x: u64, scale: &u64| x * scale, 0..3).wait().unwrap(), [0, 10, 20]);
    assert_eq!(with.try_map(scaled, [(1, 2), (3, 4)]).wait().unwrap(), [30, 70]);
    assert_eq!(with.apply(|scale: &u64| *scale, ()).wait().unwrap(), 10);
    let failed = with.try_apply(scaled, (9, 9)).wait().unwrap_err().to_string();
    assert!(failed.contains("no nine") && failed.contains("::scaled`"), "{failed}");
    let output = pool.apply(|| 4, ()).output();
    assert_eq!(with.try_apply(scaled, (output, 1)).wait().unwrap(), 50);
    let all: Result<Vec<_>, _> = with.try_imap(scaled, (0..9).map(|x| (x, 0))).wait().collect();
    assert_eq!(all.unwrap(), (0..9).map(|x| 10 * x).collect::<Vec<_>>());
    let each = |x: u64, scale: &u64| x * scale;
    assert_eq!(with.imap_unordered(each, 0..5).wait().map(Result::unwrap).sum::<u64>(), 100);
    let names = pool.with(vec!["a".to_string(), "b".to_string()]);
    let name = |x: usize, names: &Vec<String>| names[x].clone();
    assert_eq!(names.imap(name, [1, 0]).wait().map(Result::unwrap).collect::<Vec<_>>(), ["b", "a"]);
}

#[test]
fn a_value_of_a_call_outlives_its_handle() {
    let pool = pool(1);
    let slow = |pause: u64, value: &String| {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        value.clone()
    };
    let call = pool.with("kept".to_string()).map(slow, [100, 0, 0]);
    assert_eq!(call.wait().unwrap(), ["kept"; 3]);
    // Nobody has it any more, in the worker or here.
    assert_eq!(pool.with("next".to_string()).apply(slow, 0).wait().unwrap(), "next");
}

#[test]
fn a_value_that_cannot_travel_fails_the_calls() {
    #[derive(Clone, serde::Deserialize)]
    struct Closed;
    impl serde::Serialize for Closed {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("it is closed"))
        }
    }
    let pool = pool(1);
    let with = pool.with(Closed);
    for problem in [
        with.apply(|_: &Closed| (), ()).wait().unwrap_err(),
        with.map(|_: u8, _: &Closed| (), 0..3).wait().unwrap_err(),
    ] {
        assert!(problem.to_string().contains("it is closed"), "{problem}");
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = fiber::Journal::at(folder.path().join("none"));
    let durable = pool.durable(journal).with(1).apply(|x: &i32| *x, ());
    assert!(matches!(durable.wait(), Err(fiber::Error::Invalid { .. })));
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
