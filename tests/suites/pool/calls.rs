//! Calls: the functions that they take, and the order of results.

use std::time::Duration;

use fiber::{Error, Pool};
use futures_util::StreamExt;

use super::{pid_after, pool, sleep_ms, square};

#[test]
fn a_map_without_items_gives_no_results() {
    assert_eq!(pool(1).map(square, Vec::<u64>::new()).wait().unwrap(), Vec::<u64>::new());
    assert_eq!(pool(1).imap(square, Vec::<u64>::new()).wait().count(), 0);
}

#[test]
fn the_chunk_size_does_not_change_the_results() {
    let pool = pool(3);
    for chunk in [1, 7, 32, 5000] {
        let results: Result<Vec<_>, _> = pool.chunk(chunk).imap(square, 0..1000).wait().collect();
        assert_eq!(results.unwrap(), (0..1000).map(|x| x * x).collect::<Vec<_>>(), "chunk {chunk}");
    }
}

#[test]
fn task_functions_take_values_or_tuples_and_may_be_async() {
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
    assert_eq!(
        pool.map(|a: u8, b: char| format!("{a}{b}"), [(1, 'a'), (2, 'b')]).wait().unwrap(),
        ["1a", "2b"]
    );
}

#[fiber::meta(cpu = 1, memory = "64MiB")]
fn with_meta(x: u32) -> u32 {
    x
}

#[test]
fn functions_with_meta_are_task_functions() {
    assert_eq!(pool(1).map(with_meta, 0..3).wait().unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn any_async_runtime_can_await_the_handles() {
    let pool = Pool::builder().processes(2).start().await.unwrap();
    assert_eq!(pool.map(square, 0..3).await.unwrap(), [0, 1, 4]);
    let results: Vec<_> = pool.imap(square, 0..3).map(Result::unwrap).collect().await;
    assert_eq!(results, [0, 1, 4]);
}

#[test]
fn stop_waits_for_detached_calls() {
    let directory = tempfile::tempdir().unwrap();
    let touch = |path: String| {
        sleep_ms(1);
        std::fs::write(path, "").unwrap();
        // Results that are not taken block no task.
        vec![0u8; 100_000]
    };
    let paths = |call: &str| {
        let path =
            |n: u32| directory.path().join(format!("{call}-{n}")).to_string_lossy().into_owned();
        (0..100).map(path).collect::<Vec<_>>()
    };
    let pool = pool(2).buffer(1 << 20);
    paths("apply").into_iter().for_each(|path| pool.apply(touch, path).detach());
    pool.map(touch, paths("map")).detach();
    pool.imap_unordered(touch, paths("imap_unordered")).detach();
    pool.try_map(|path: String| std::fs::write(path + "/none", ""), paths("try_map")).detach();
    let mut some = pool.imap(touch, paths("imap"));
    for result in (&mut some).into_iter().take(3) {
        assert_eq!(result.unwrap().len(), 100_000);
    }
    some.detach();
    pool.stop().wait().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 400);
}

#[test]
fn a_long_task_blocks_no_other() {
    // The long task follows short ones, so that many short tasks are pending at its worker.
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
        runtime
            .block_on(self.take(count).filter(|result| std::future::ready(result.is_ok())).count())
    }
}
