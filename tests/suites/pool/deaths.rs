//! Workers that die while they run a task.

use std::time::Duration;

use fiber::{Error, error::ExitReason};
use fiber_test_support::signals;

use super::{pid_after, pool};

#[test]
fn a_worker_that_dies_is_replaced_and_its_tasks_run_again() {
    for how in ["kill", "abort", "exit", "overflow"] {
        let directory = tempfile::tempdir().unwrap();
        let first = directory.path().join("died").to_string_lossy().into_owned();
        let task = |x: u64, how: String, path: String| {
            if x == 150 && std::fs::File::create_new(path).is_ok() {
                die(&how);
            }
            x
        };
        let items = (0..300).map(move |x| (x, how.to_string(), first.clone()));
        assert_eq!(pool(2).map(task, items).wait().unwrap(), (0..300).collect::<Vec<_>>(), "{how}");
    }
}

fn die(how: &str) {
    match how {
        "kill" => signals::die(),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(3),
        "overflow" => drop(std::hint::black_box(overflow(0))),
        other => unreachable!("{other}"),
    }
}

#[allow(unconditional_recursion)]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 1024]);
    overflow(depth + 1) + frame[0]
}

#[test]
fn a_task_that_kills_its_workers_fails_alone_with_reason_and_output() {
    let task = |x: u64| {
        if x == 500 {
            eprintln!("about to die of {x}");
            std::process::abort();
        }
        x
    };
    let results: Vec<_> = pool(2).imap(task, 0..1000).wait().collect();
    for (x, result) in (0..).zip(&results) {
        match result {
            Ok(y) => assert_eq!(x, *y),
            Err(Error::WorkerDied { index: 500, deaths: 3, exit, .. }) if x == 500 => {
                assert_eq!(exit.reason, ExitReason::Signal(6));
                assert!(
                    exit.tail.iter().any(|line| line.contains("about to die of 500")),
                    "{:?}",
                    exit.tail
                );
            }
            other => panic!("{x}: {other:?}"),
        }
    }
    assert_eq!(results.len(), 1000);
}

#[test]
fn a_task_that_times_out_fails_and_does_not_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let hang = |path: String| {
        use std::io::Write;
        let runs = std::fs::File::options().create(true).append(true).open(path);
        runs.and_then(|mut runs| runs.write_all(b"x")).expect("the directory is writable");
        pid_after(3_600_000)
    };
    let runs = directory.path().join("runs");
    let pool = pool(1).timeout(Duration::from_secs(2));
    let error = pool.apply(hang, runs.to_string_lossy().into_owned()).wait().unwrap_err();
    let text = "timed out: its worker was killed because a task ran longer than 2s";
    assert!(error.to_string().contains(text), "{error}");
    assert!(matches!(error, Error::TaskTimedOut { deaths: 1, .. }), "{error}");
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "x");
}

#[test]
fn the_error_of_a_task_that_times_out_shows_where_it_hung() {
    #[inline(never)]
    fn sleeps_too_long() {
        std::thread::sleep(Duration::from_secs(3600));
        std::hint::black_box(());
    }
    #[inline(never)]
    fn never_ends() {
        while std::hint::black_box(true) {}
    }
    let task = |x: u64| match x {
        0 => x,
        1 => sleeps_too_long_after(x),
        _ => {
            never_ends();
            x
        }
    };
    #[inline(never)]
    fn sleeps_too_long_after(x: u64) -> u64 {
        println!("about to sleep");
        sleeps_too_long();
        x
    }
    let pool = pool(1).timeout(Duration::from_secs(2));
    let results: Vec<_> = pool.imap(task, 0..3).wait().collect();
    let [Ok(0), Err(sleeping), Err(looping)] = &results[..] else { panic!("{results:?}") };
    for (error, text, functions) in [
        (
            sleeping,
            "its last output:\n    about to sleep\n\
             the task's thread sleeps in ",
            &["nanosleep", "::sleeps_too_long (", "::sleeps_too_long_after ("][..],
        ),
        (looping, "ran longer than 2s; the task's thread runs:\n    ", &["::never_ends ("]),
    ] {
        let shown = error.to_string();
        assert!(shown.contains(text), "{shown}");
        for function in functions {
            assert!(shown.contains(function), "{shown}");
        }
        assert!(shown.contains(file!()), "{shown}");
        // Calls of fiber would only hide those of the task.
        assert!(!shown.contains("fiber_pool"), "{shown}");
        let Error::TaskTimedOut { exit, .. } = error else { panic!("{error}") };
        assert!(!exit.stack.as_ref().unwrap().frames.is_empty());
    }
}

#[test]
fn a_time_limit_of_zero_is_a_limit() {
    let pool = pool(1).timeout(Duration::ZERO);
    let result = pool.apply(|| pid_after(3_600_000), ()).wait();
    assert!(matches!(result, Err(Error::TaskTimedOut { .. })), "{result:?}");
}
