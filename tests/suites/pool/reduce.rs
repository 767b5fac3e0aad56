//! Values that are merged to one in a tree of tasks.

use fiber::sync::Event;
use fiber::{Error, Output};

use super::{pool, sleep_ms, square};

fn text(x: u64) -> String {
    format!("{x},")
}

fn join(left: String, right: String) -> String {
    left + &right
}

fn texts(count: u64) -> String {
    (0..count).map(text).collect()
}

#[test]
fn values_are_merged_in_their_order() {
    let pool = pool(2);
    for count in [2, 3, 4, 7, 64, 100, 1000] {
        let merged = pool.map(text, 0..count).reduce(join);
        assert_eq!(merged.wait().unwrap(), Some(texts(count)));
    }
    assert_eq!(pool.map(text, 0..0).reduce(join).wait().unwrap(), None);
    assert!(pool.map(text, 0..0).reduce(join).output().is_none());
    assert_eq!(pool.map(text, 0..1).reduce(join).wait().unwrap(), Some("0,".into()));
    // An iterator without a known length.
    let even = pool.map(text, (0..100).filter(|x| x % 2 == 0)).reduce(join);
    let expected: String = (0..100).step_by(2).map(text).collect();
    assert_eq!(even.wait().unwrap(), Some(expected));
    assert_eq!(pool.map(text, (0..9).filter(|_| false)).reduce(join).wait().unwrap(), None);
}

#[tokio::test]
async fn a_merge_may_be_async_and_its_value_an_input() {
    let pool = pool(2);
    let sum = async |a: u64, b: u64| a + b;
    assert_eq!(pool.map(square, 0..10).reduce(sum).await.unwrap(), Some(285));
    let largest: Output<u64> = pool.map(square, 0..10).reduce(u64::max).output().unwrap();
    let inputs: Vec<_> = (0..5).map(|x| (largest.clone(), x)).collect();
    let shifted = pool.map(|largest: u64, x: u64| largest + x, inputs).reduce(u64::min);
    assert_eq!(shifted.await.unwrap(), Some(81));
}

#[test]
fn the_first_failure_is_that_of_all() {
    let pool = pool(2);
    // The neighbours of the failed task do not end by themselves.
    let fail = |x: u64| match x {
        5 => Err("five".to_string()),
        _ => {
            sleep_ms(600_000);
            Ok(())
        }
    };
    let failed = pool.try_map(fail, [5, 6, 7]).reduce(|(), ()| ()).wait().unwrap_err();
    assert!(matches!(failed, Error::Task { index: 0, .. }), "{failed}");
    assert!(failed.to_string().contains("five"), "{failed}");
    pool.kill();
    let pool = super::pool(2);
    let add = |a: u8, b: u8| a.checked_add(b).ok_or("too much");
    let failed = pool.map(|x: u8| x, 100..200).try_reduce(add).wait().unwrap_err();
    assert!(matches!(failed, Error::Task { .. }), "{failed}");
    assert!(failed.to_string().contains("too much"), "{failed}");
    let panics = (0..3).filter(|x: &u64| if *x == 2 { panic!("no more") } else { true });
    let failed = pool.map(square, panics).reduce(u64::max).wait().unwrap_err();
    assert!(failed.to_string().contains("no more"), "{failed}");
}

#[test]
fn a_pool_that_was_dropped_merges_nothing() {
    let call = pool(1).map(square, 0..10);
    let error = call.reduce(u64::max).wait().unwrap_err();
    assert!(matches!(error, Error::PoolEnded { .. }), "{error}");
}

#[test]
fn dropping_the_handle_cancels_tasks_and_merges() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let pool = pool(1);
    let gate = Event::new().unwrap();
    let busy = pool.apply(|gate: Event| gate.wait_set().wait().unwrap(), gate.clone()).output();
    let touch = |path: String, x: u64, (): ()| std::fs::write(format!("{path}/{x}"), "").is_ok();
    let items = (0..100).map({
        let busy = busy.clone();
        move |x| (path.clone(), x, busy.clone())
    });
    drop(pool.map(touch, items.collect::<Vec<_>>()).reduce(|a, b| a && b));
    gate.set().wait().unwrap();
    busy.get().wait().unwrap();
    pool.stop().wait().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
