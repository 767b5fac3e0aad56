//! Tasks that fail.

use std::panic::panic_any;

use fiber::error::{Failure, FailureKind};
use fiber::{Error, Pool};

use super::{Bomb, pool, square};

#[test]
fn a_failing_task_fails_alone_and_its_worker_continues() {
    let odd =
        |x: u32| if x % 2 == 1 { Err(format!("{x} is odd")) } else { Ok((x, std::process::id())) };
    let pool = pool(1);
    let results: Vec<_> = pool.try_imap(odd, 0..4).wait().collect();
    match &results[3] {
        Err(Error::Task { index: 3, failure, .. }) => {
            assert_eq!((failure.kind, &*failure.message), (FailureKind::Returned, "3 is odd"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(results[0].as_ref().unwrap().1, results[2].as_ref().unwrap().1);
}

#[test]
fn an_error_names_a_closure_by_file_and_line() {
    let fails = |x: u32| if x == 2 { Err("no") } else { Ok(x) };
    let error = pool(1).try_map(fails, 0..4).wait().unwrap_err().to_string();
    let named = format!("line::{{closure@{}:{}}}", file!(), line!() - 1);
    assert!(error.contains(&named), "{error}");
    let error = pool(1).try_apply(|| Err::<(), _>("no"), ()).wait().unwrap_err().to_string();
    let named = format!("line::{{closure@{}:{}}}", file!(), line!() - 1);
    assert!(error.contains(&named), "{error}");
    let dies = || -> () { std::process::abort() };
    let error = pool(1).max_deaths(1).apply(dies, ()).wait().unwrap_err().to_string();
    let named = format!("line::{{closure@{}:{}}}", file!(), line!() - 1);
    assert!(error.contains(&named), "{error}");
}

#[test]
fn a_panic_gives_its_message_and_location() {
    let error = pool(1)
        .map(|x: u32| assert!(x < 2, "{x} is too much"), 0..4)
        .wait()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("panicked: ") && error.contains("is too much") && error.contains(file!()),
        "{error}"
    );
}

#[test]
fn a_payload_that_panics_when_it_is_dropped_fails_its_task_alone() {
    let pool = Pool::builder().processes(1).threads_per_worker(2).build().unwrap();
    let burst = |x: u64| if x == 1 { panic_any(Bomb) } else { x };
    let results: Vec<_> = pool.imap(burst, 0..3).wait().collect();
    let [Ok(0), Err(Error::Task { failure, .. }), Ok(2)] = &results[..] else {
        panic!("{results:?}")
    };
    assert_eq!(failure.kind, FailureKind::Panicked);
    let items = (0..3).inspect(|x: &u64| {
        if *x == 1 {
            panic_any(Bomb)
        }
    });
    pool.map(square, items).wait().unwrap_err();
    assert_eq!((pool.apply(square, 3).wait().unwrap(), pool.stats().deaths), (9, 0));
}

#[test]
fn a_long_message_arrives_without_its_middle() {
    let panics = |megabytes: usize| {
        if megabytes > 0 {
            panic!("begin {} end", "x".repeat(megabytes << 20))
        }
    };
    let fails = |megabytes: usize| match megabytes {
        0 => Ok(()),
        _ => Err(format!("begin {} end", "x".repeat(megabytes << 20))),
    };
    let pool = pool(1);
    for error in [pool.apply(panics, 8).wait(), pool.try_apply(fails, 8).wait()] {
        let error = error.unwrap_err().to_string();
        assert!(error.len() < 70_000, "{} bytes", error.len());
        for part in ["begin xxx", "bytes left out]", "xxx end"] {
            assert!(error.contains(part), "`{part}` is missing");
        }
    }
}

#[test]
fn a_failure_of_the_function_itself_arrives_whole() {
    let fails = |length: usize| -> Result<(), Failure> {
        let mut failure = Failure::new(FailureKind::Returned, "");
        failure.message = "x".repeat(length);
        Err(failure)
    };
    let Err(Error::Task { failure, .. }) = pool(1).try_apply(fails, 200_000).wait() else {
        panic!("it fails");
    };
    assert_eq!(failure.message.len(), 200_000);
}

#[test]
fn processes_that_start_processes_are_limited_in_depth() {
    fn nest(levels: u32) -> fiber::Result<u32> {
        if levels == 0 { Ok(0) } else { pool(1).try_apply(nest, levels - 1).wait().map(|n| n + 1) }
    }
    assert_eq!(nest(8).unwrap(), 8);
    let error = nest(9).unwrap_err().to_string();
    assert!(error.contains("FIBER_MAX_DEPTH"), "{error}");
}
