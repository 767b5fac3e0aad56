//! All forms of calls.

use std::time::Duration;

use fiber::stats::PoolPhase;
use fiber::{Pool, Result};
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;
use futures_util::StreamExt;

use super::{durable_pool, items, journal, note, square, variable};

fn parse(text: String) -> std::result::Result<u64, String> {
    note(&text);
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn texts() -> [String; 3] {
    ["10", "11", "12"].map(String::from)
}

#[scenario("forms")]
fn forms() -> Result<()> {
    let pool = durable_pool()?;
    println!("map {:?}", pool.map(square, 0..3).wait()?);
    println!("imap {:?}", pool.imap(square, 3..6).wait().collect::<Result<Vec<_>>>()?);
    let mut unordered: Vec<_> = pool.imap_unordered(square, 6..9).wait().collect::<Result<_>>()?;
    unordered.sort_unstable();
    println!("imap_unordered {unordered:?}");
    println!("apply {}", pool.apply(square, 9).wait()?);
    println!("try_map {:?}", pool.try_map(parse, texts()).wait()?);
    println!("try_imap {:?}", pool.try_imap(parse, texts()).wait().collect::<Result<Vec<_>>>()?);
    let mut unordered: Vec<_> =
        pool.try_imap_unordered(parse, texts()).wait().collect::<Result<_>>()?;
    unordered.sort_unstable();
    println!("try_imap_unordered {unordered:?}");
    println!("try_apply {}", pool.try_apply(parse, "13".to_string()).wait()?);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("there is room");
    runtime.block_on(async {
        println!("async map {:?}", pool.map(square, 20..22).await?);
        let stream: Vec<_> = pool.imap(square, 22..24).collect().await;
        println!("async imap {:?}", stream.into_iter().collect::<Result<Vec<_>>>()?);
        println!("async apply {}", pool.apply(square, 24).await?);
        Result::<()>::Ok(())
    })?;
    println!("several arguments {}", pool.apply(|a: u64, b: u64| a + b, (1, 2)).wait()?);
    println!("recorded {}", pool.stats().tasks.recorded);
    println!("workers {}", pool.ready_workers());
    Ok(())
}

/// Squares the items, in a call with the options of the environment.
#[scenario("squares")]
fn squares() -> Result<()> {
    let mut journal = journal().version(variable("VERSION"));
    if !variable("CALL").is_empty() {
        journal = journal.call(variable("CALL"));
    }
    if !variable("WITHOUT_SYNC").is_empty() {
        journal = journal.without_sync();
    }
    let pool = Pool::new(2)?.durable(journal);
    println!("{:?}", pool.map(square, items()).wait()?);
    Ok(())
}

#[scenario("two calls")]
fn two_calls() -> Result<()> {
    let pool = durable_pool()?;
    let count = |x: u64| {
        note(x);
        std::process::id()
    };
    let (one, other) = (pool.map(count, items()).wait()?, pool.map(count, items()).wait()?);
    println!("{one:?}\n{other:?}");
    Ok(())
}

/// Equal and other tasks by `apply`.
#[scenario("single tasks")]
fn single_tasks() -> Result<()> {
    let pool = durable_pool()?;
    let results: Result<Vec<_>> =
        items().into_iter().map(|item| pool.apply(square, item).wait()).collect();
    println!("{:?}", results?);
    Ok(())
}

#[scenario("endless")]
fn endless() -> Result<()> {
    let count = items()[0] as usize;
    let pool = durable_pool()?;
    let taken: Vec<_> = pool.imap(square, 0..).wait().take(count).collect::<Result<_>>()?;
    assert!((0..).zip(&taken).all(|(x, square)| *square == x * x));
    println!("took {}", taken.len());
    Ok(())
}

/// Runs a call without a handle, and stops the pool.
#[scenario("detached")]
fn detached() -> Result<()> {
    let pool = durable_pool()?;
    pool.map(square, 0..100).detach();
    pool.stop().wait()?;
    assert_eq!(pool.stats().phase, PoolPhase::Ended);
    Ok(())
}

/// Takes a few results, and drops or cancels the call.
#[scenario("dropped")]
fn dropped() -> Result<()> {
    let pool = durable_pool()?;
    let mut call = pool.imap(square, 0..1000).wait();
    for result in call.by_ref().take(10) {
        result?;
    }
    drop(call);
    let mut cancelled = pool.map(|_: u64| std::thread::sleep(Duration::from_secs(600)), 0..9);
    cancelled.cancel();
    assert!(cancelled.wait().is_err());
    pool.stop().wait()
}

/// Reads none of many large results until the journal has given as many as it may.
#[scenario("slow reader")]
fn slow_reader() -> Result<()> {
    const ITEMS: u64 = 400;
    const BYTES: usize = 50_000;
    let pool = durable_pool()?.buffer(1 << 20);
    let large = |x: u64| {
        note(x);
        vec![u32::MAX - x as u32; BYTES / 4]
    };
    let mut call = pool.imap(large, 0..ITEMS).wait();
    let mut results = vec![call.next().expect("there are results")?];
    let recorded = || pool.stats().tasks.recorded;
    if !variable("AGAIN").is_empty() {
        wait_until("half of the buffer", || recorded() >= 10);
        // Time to give more, if there were room.
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("ahead {}", recorded());
    results.extend(call.collect::<Result<Vec<_>>>()?);
    assert!((0..).zip(&results).all(|(x, result)| *result == vec![u32::MAX - x; BYTES / 4]));
    println!("results {}", results.len());
    Ok(())
}

/// Uses one journal with several pools on several threads.
#[scenario("several pools")]
fn several_pools() -> Result<()> {
    let threads: Vec<_> = ["one", "two", "three"]
        .into_iter()
        .map(|name| {
            std::thread::spawn(move || {
                let pool = Pool::new(1)?.durable(journal().call(name));
                let more = pool.imap(square, 0..500).wait();
                let single = pool.apply(square, 1000).wait()?;
                let sum: u64 = more.collect::<Result<Vec<_>>>()?.iter().sum();
                Result::<String>::Ok(format!("{name} {}", sum + single))
            })
        })
        .collect();
    for thread in threads {
        println!("{}", thread.join().expect("it does not panic")?);
    }
    Ok(())
}

/// Shows what is known of a call that goes on where it was.
#[scenario("counts")]
fn figures() -> Result<()> {
    let pool = durable_pool()?;
    let last = |x: u64| {
        if x == 10 {
            std::thread::sleep(Duration::from_secs(600));
        }
        square(x)
    };
    let mut call = pool.imap(last, items()).wait();
    for result in call.by_ref().take(10) {
        result?;
    }
    // The results may come before the end of the items.
    let has_totals = || pool.stats().calls.iter().all(|call| call.total.is_some());
    wait_until("the end of the items", has_totals);
    let stats = pool.stats();
    let calls: Vec<_> = stats.calls.iter().map(|call| (call.done, call.total)).collect();
    println!("calls {calls:?} recorded {}", stats.tasks.recorded);
    Ok(())
}
