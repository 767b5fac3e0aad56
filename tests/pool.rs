//! What pools promise, with real processes.

use std::collections::HashSet;
use std::time::Duration;

use fiber::{Broadcast, Error, ExitReason, FailureKind, Pool};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

fiber::test_harness!();

fn square(x: u64) -> u64 {
    x * x
}

fn pool(processes: usize) -> Pool {
    Pool::new(processes).expect("a pool can be made")
}

fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn pid_after(ms: u64) -> u32 {
    sleep_ms(ms);
    std::process::id()
}

#[test]
fn map_keeps_the_order() {
    let expected: Vec<_> = (0..1000).map(|x| x * x).collect();
    assert_eq!(pool(3).map(square, 0..1000).wait().unwrap(), expected);
}

#[test]
fn map_of_nothing_is_nothing() {
    assert_eq!(pool(1).map(square, Vec::new()).wait().unwrap(), Vec::<u64>::new());
    assert_eq!(pool(1).imap(square, Vec::new()).wait().count(), 0);
}

#[test]
fn every_chunk_size_gives_the_same() {
    let pool = pool(3);
    for chunk in [1, 7, 32, 5000] {
        let results: Result<Vec<_>, _> = pool.chunk(chunk).imap(square, 0..1000).wait().collect();
        assert_eq!(results.unwrap(), (0..1000).map(|x| x * x).collect::<Vec<_>>(), "chunk {chunk}");
    }
}

#[test]
fn imap_unordered_gives_each_result_once() {
    let results: Result<HashSet<_>, _> = pool(3).imap_unordered(square, 0..5000).wait().collect();
    assert_eq!(results.unwrap(), (0..5000).map(|x| x * x).collect());
}

#[test]
fn functions_take_values_and_tuples_sync_and_async() {
    async fn later(x: u32) -> u32 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        x + 1
    }
    let pool = pool(2);
    assert_eq!(pool.apply(square, 3).wait().unwrap(), 9);
    assert_eq!(pool.apply(|a: i32, b: i32| a - b, (5, 3)).wait().unwrap(), 2);
    assert_eq!(pool.apply(|pair: (i32, i32)| pair.0, (5, 3)).wait().unwrap(), 5);
    assert_eq!(pool.apply(|| "nothing".to_string(), ()).wait().unwrap(), "nothing");
    assert_eq!(pool.apply(later, 1).wait().unwrap(), 2);
    assert_eq!(pool.map(|x: u32| async move { 2 * x }, 0..3).wait().unwrap(), [0, 2, 4]);
    assert_eq!(pool.map(|a: u8, b: char| format!("{a}{b}"), [(1, 'a'), (2, 'b')]).wait().unwrap(), ["1a", "2b"]);
}

#[tokio::test]
async fn handles_are_futures_and_streams_of_any_runtime() {
    let pool = Pool::builder().processes(2).start().await.unwrap();
    assert_eq!(pool.map(square, 0..3).await.unwrap(), [0, 1, 4]);
    let results: Vec<_> = pool.imap(square, 0..3).map(Result::unwrap).collect().await;
    assert_eq!(results, [0, 1, 4]);
}

#[test]
fn five_thousand_applies_at_once() {
    let pool = pool(4);
    let calls: Vec<_> = (0..5000)
        .map(|x| {
            pool.apply(
                |x: u64| {
                    sleep_ms(1);
                    x + 1
                },
                x,
            )
        })
        .collect();
    for (x, call) in (0..).zip(calls) {
        assert_eq!(call.wait().unwrap(), x + 1);
    }
}

#[test]
fn many_maps_share_a_pool() {
    let pool = pool(2);
    let maps: Vec<_> = (0..8u64).map(|n| pool.map(|n: u64, x: u64| n * x, (0..200).map(move |x| (n, x)))).collect();
    for (n, map) in (0..).zip(maps) {
        assert_eq!(map.wait().unwrap(), (0..200).map(|x| n * x).collect::<Vec<_>>());
    }
}

#[test]
fn a_long_task_holds_up_no_other() {
    // The long task comes among short ones, when the worker that gets it holds many of those.
    let task = |x: u64| if x == 3000 { pid_after(3_000_000) } else { std::process::id() };
    let pool = pool(2);
    let mut results = pool.imap_unordered(task, 0..6000);
    let short = results.by_ref_blocking(5999);
    assert_eq!(short, 5999);
}

trait Take {
    fn by_ref_blocking(&mut self, count: usize) -> usize;
}

impl<S: futures_util::Stream<Item = Result<u32, Error>> + Unpin> Take for S {
    fn by_ref_blocking(&mut self, count: usize) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.take(count).filter(|result| std::future::ready(result.is_ok())).count())
    }
}

#[test]
fn a_failing_task_fails_alone_and_its_worker_lives() {
    let odd = |x: u32| if x % 2 == 1 { Err(format!("{x} is odd")) } else { Ok((x, std::process::id())) };
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
fn a_panic_is_told_with_message_and_place() {
    let error = pool(1).map(|x: u32| assert!(x < 2, "{x} is too much"), 0..4).wait().unwrap_err().to_string();
    assert!(
        error.contains("panicked: ") && error.contains("is too much") && error.contains("tests/pool.rs"),
        "{error}"
    );
}

#[test]
fn a_result_can_be_a_value() {
    let check = |x: i32| if x > 0 { Ok(x) } else { Err("not positive".to_string()) };
    let results = pool(1).map(check, [1, -1]).wait().unwrap();
    assert_eq!(results, [Ok(1), Err("not positive".to_string())]);
}

#[test]
fn errors_that_only_display_are_carried_in_words() {
    let read = |path: String| std::fs::read_to_string(path);
    let error = pool(1).try_apply(read, "/no/such/file".to_string()).wait().unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    let chain = || anyhow::Context::context(Err::<u32, _>(anyhow::anyhow!("inner")), "outer");
    let error = pool(1).try_apply(chain, ()).wait().unwrap_err().to_string();
    assert!(error.contains("outer: inner"), "{error}");
}

#[test]
fn retries_try_a_failing_task_again() {
    let directory = tempfile::tempdir().unwrap();
    let flaky = |path: String| {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).map_err(|e| e.to_string())?;
        file.write_all(b"x").map_err(|e| e.to_string())?;
        let attempts = std::fs::metadata(&path).map_err(|e| e.to_string())?.len();
        if attempts < 3 { Err(format!("attempt {attempts}")) } else { Ok(attempts) }
    };
    let paths = |run: &str| -> Vec<String> {
        (0..20).map(|n| directory.path().join(format!("{run}{n}")).to_string_lossy().into_owned()).collect()
    };
    assert_eq!(pool(2).retries(2).try_map(flaky, paths("a")).wait().unwrap(), vec![3; 20]);
    let error = pool(2).retries(1).try_map(flaky, paths("b")).wait().unwrap_err();
    assert!(error.to_string().contains("attempt 2"), "{error}");
}

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
        "kill" => {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            std::thread::park();
        }
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
fn a_poisonous_task_fails_alone_with_reason_and_last_words() {
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
                assert!(exit.tail.iter().any(|line| line.contains("about to die of 500")), "{:?}", exit.tail);
            }
            other => panic!("{x}: {other:?}"),
        }
    }
    assert_eq!(results.len(), 1000);
}

#[test]
fn a_task_that_hangs_past_its_timeout_is_given_up() {
    let task = |x: u64| if x == 5 { pid_after(3_600_000) } else { 0 };
    let pool = pool(2).timeout(Duration::from_millis(100)).max_deaths(2);
    let results: Vec<_> = pool.imap(task, 0..10).wait().collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 9);
    match &results[5] {
        Err(Error::WorkerDied { deaths: 2, exit, .. }) => {
            assert_eq!(exit.reason, ExitReason::TaskTimedOut(Duration::from_millis(100)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn cancelling_ends_what_runs() {
    let pool = pool(2);
    let mut hanging = pool.map(|_: u32| sleep_ms(3_600_000), 0..10);
    // Both workers hang, so whatever runs next has been waited for.
    let other = pool.apply(square, 7);
    hanging.cancel();
    assert!(matches!(hanging.wait(), Err(Error::Cancelled { .. })));
    assert_eq!(other.wait().unwrap(), 49);
}

#[test]
fn dropping_a_handle_cancels_what_has_not_begun() {
    let directory = tempfile::tempdir().unwrap();
    let touch = |path: String| {
        sleep_ms(20);
        std::fs::write(path, "").unwrap();
    };
    let path = |n: u32| directory.path().join(n.to_string()).to_string_lossy().into_owned();
    let paths: Vec<_> = (0..1000).map(path).collect();
    let pool = pool(2);
    pool.wait_until_ready().wait().unwrap();
    drop(pool.map(touch, paths));
    assert_eq!(pool.apply(square, 7).wait().unwrap(), 49);
    pool.join().wait().unwrap();
    assert!(std::fs::read_dir(directory.path()).unwrap().count() < 500);
}

#[test]
fn each_worker_is_initialised_once() {
    fn set(value: u32) {
        // A task function captures nothing, so what an initialiser leaves is global.
        VALUE.store(value, std::sync::atomic::Ordering::SeqCst);
        CALLS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
    static VALUE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let read =
        |_: u32| (VALUE.load(std::sync::atomic::Ordering::SeqCst), CALLS.load(std::sync::atomic::Ordering::SeqCst));
    let pool = Pool::builder().processes(2).initializer(set, 42).build().unwrap();
    assert_eq!(pool.map(read, 0..20).wait().unwrap(), vec![(42, 1); 20]);
}

#[test]
fn an_initialiser_that_fails_fails_the_pool_with_its_words() {
    fn panics() {
        panic!("no licence")
    }
    let fails = || Err::<(), _>("no licence");
    for pool in [Pool::builder().initializer(panics, ()), Pool::builder().try_initializer(fails, ())] {
        let error = pool.processes(2).build().unwrap().map(square, 0..10).wait().unwrap_err().to_string();
        assert!(error.contains("no licence") && error.contains("initialiser"), "{error}");
    }
}

#[test]
fn a_pool_whose_workers_can_not_be_started_says_why_once() {
    let fails = || Err::<(), _>("no licence");
    let pool = Pool::builder().processes(1).try_initializer(fails, ()).build().unwrap();
    let error = pool.apply(square, 3).wait().unwrap_err().to_string();
    assert_eq!(error.matches("could not be started").count(), 1, "{error}");
    assert!(error.contains("no licence"), "{error}");
}

#[test]
fn a_pool_whose_workers_do_not_stay_alive_fails_with_their_last_words() {
    fn doom() {
        std::thread::spawn(|| {
            sleep_ms(10);
            eprintln!("no licence");
            std::process::exit(3);
        });
    }
    let pool = Pool::builder().name("doomed").processes(2).initializer(doom, ()).build().unwrap();
    let error = loop {
        // Whether it is ready at times is a matter of luck.
        if let Err(error) = pool.wait_until_ready().wait() {
            break error.to_string();
        }
        std::thread::yield_now();
    };
    assert!(error.contains("pool `doomed` failed") && error.contains("in a row"), "{error}");
    assert!(error.contains("exited with code 3") && error.contains("no licence"), "{error}");
    assert_eq!(pool.apply(square, 3).wait().unwrap_err().to_string(), error);
    pool.join().wait().unwrap();
}

#[test]
fn an_ended_pool_says_so_to_all_who_ask() {
    let pool = pool(1);
    pool.terminate().wait().unwrap();
    let errors = [
        pool.wait_until_ready().wait().unwrap_err(),
        pool.scale(2).wait().unwrap_err(),
        pool.broadcast(1).map(drop).unwrap_err(),
        pool.apply(square, 3).wait().unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("was terminated"), "{error}");
    }
}

#[test]
fn workers_are_replaced_after_their_tasks() {
    let pool = Pool::builder().processes(2).tasks_per_worker(10).build().unwrap();
    let pids = pool.map(|_: u32| std::process::id(), 0..100).wait().unwrap();
    let mut counts = std::collections::HashMap::new();
    pids.iter().for_each(|pid| *counts.entry(pid).or_insert(0) += 1);
    assert!(counts.len() >= 10 && counts.values().all(|count| *count <= 10), "{counts:?}");
}

#[test]
fn a_broadcast_value_reaches_all_workers_also_later_ones() {
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
fn several_threads_a_worker_run_tasks_at_the_same_time() {
    // Each task waits for the others: with fewer than four at a time it would not end.
    let meet = |_: u32| {
        static HERE: std::sync::Barrier = std::sync::Barrier::new(4);
        HERE.wait();
        std::process::id()
    };
    let pool = Pool::builder().processes(1).threads_per_worker(4).build().unwrap();
    let pids: HashSet<_> = pool.map(meet, 0..40).wait().unwrap().into_iter().collect();
    assert_eq!(pids.len(), 1);
}

#[test]
fn scaling_up_and_down_while_working() {
    let pool = pool(1);
    let work = pool.imap(
        |x: u64| {
            sleep_ms(1);
            x
        },
        0..2000,
    );
    for processes in [4, 2, 5, 1] {
        pool.scale(processes).wait().unwrap();
        assert_eq!(pool.ready(), processes);
    }
    let results: Result<Vec<_>, _> = work.wait().collect();
    assert_eq!(results.unwrap(), (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_pool_scales_with_its_queue() {
    let pool = Pool::builder().scale_between(1..=3).build().unwrap();
    let pids = pool.imap_unordered(pid_after, std::iter::repeat(5));
    let mut seen = HashSet::new();
    for pid in pids.wait() {
        seen.insert(pid.unwrap());
        if seen.len() == 3 {
            break;
        }
    }
    // Nobody asks for the rest: the pool shrinks again, and still works.
    while pool.ready() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(pool.map(square, 0..3).wait().unwrap(), [0, 1, 4]);
}

#[test]
fn a_closed_pool_ends_its_calls_and_takes_no_more() {
    let pool = pool(2);
    let work = pool.map(
        |x: u64| {
            sleep_ms(1);
            x
        },
        0..100,
    );
    pool.close();
    let refused = pool.map(square, 0..3).wait().unwrap_err().to_string();
    assert!(refused.contains("closed"), "{refused}");
    assert_eq!(work.wait().unwrap().len(), 100);
    pool.join().wait().unwrap();
}

#[test]
fn termination_fails_what_is_under_way() {
    let pool = pool(2);
    let hanging = pool.map(|_: u32| sleep_ms(3_600_000), 0..10);
    pool.terminate().wait().unwrap();
    let error = hanging.wait().unwrap_err().to_string();
    assert!(error.contains("terminated"), "{error}");
    let error = pool.apply(square, 1).wait().unwrap_err().to_string();
    assert!(error.contains("terminated"), "{error}");
}

#[test]
fn dropping_a_pool_ends_its_workers() {
    let pool = pool(2);
    let pid = pool.apply(std::process::id, ()).wait().unwrap();
    let hanging = pool.map(|_: u32| sleep_ms(3_600_000), 0..10);
    drop(pool);
    assert!(matches!(hanging.wait(), Err(Error::PoolEnded { .. })));
    wait_until(|| !alive(pid));
}

/// Waits for what the system does by itself.
fn wait_until(reached: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !reached() {
        assert!(std::time::Instant::now() < deadline, "it did not happen");
        std::thread::yield_now();
    }
}

fn alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn an_endless_iterator_is_taken_as_results_are() {
    let firsts: Result<Vec<_>, _> = pool(2).imap(square, 0..).wait().take(100_000).collect();
    assert_eq!(firsts.unwrap()[99_999], 99_999 * 99_999);
}

#[test]
fn an_iterator_that_waits_for_results_is_fed() {
    // The next item depends on the last result.
    let (next, items) = std::sync::mpsc::channel();
    next.send(1u64).unwrap();
    let mut last = 0;
    for result in pool(2).imap(|x: u64| x + 1, items).wait() {
        last = result.unwrap();
        if last == 50 {
            break;
        }
        next.send(last).unwrap();
    }
    assert_eq!(last, 50);
}

#[test]
fn a_panicking_iterator_ends_the_call_with_its_words() {
    let items = (0..100u64).inspect(|x| assert!(*x < 50, "no more items"));
    let error = pool(1).map(square, items).wait().unwrap_err().to_string();
    assert!(error.contains("no more items"), "{error}");
}

#[test]
fn large_arguments_and_results_travel() {
    let reverse = |mut bytes: serde_bytes::ByteBuf| {
        bytes.reverse();
        bytes
    };
    let items: Vec<_> = (0..16u8).map(|n| serde_bytes::ByteBuf::from(vec![n; (1 << 20) + usize::from(n)])).collect();
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
fn pools_nest() {
    let outer = |n: u64| {
        let inner = Pool::new(2).map_err(|error| error.to_string())?;
        inner.map(square, 0..n).wait().map(|squares| squares.iter().sum::<u64>()).map_err(|error| error.to_string())
    };
    assert_eq!(pool(2).try_map(outer, [3, 4]).wait().unwrap(), [5, 14]);
}

#[fiber::meta(cpu = 1, memory = "64MiB")]
fn with_wishes(x: u32) -> u32 {
    x
}

#[test]
fn functions_with_wishes_are_functions() {
    assert_eq!(pool(1).map(with_wishes, 0..3).wait().unwrap(), [0, 1, 2]);
}

#[test]
fn zero_processes_and_threads_are_refused() {
    for pool in
        [Pool::new(0), Pool::builder().threads_per_worker(0).build(), Pool::builder().scale_between(0..=3).build()]
    {
        let error = pool.unwrap_err().to_string();
        assert!(error.contains("at least 1"), "{error}");
    }
}
