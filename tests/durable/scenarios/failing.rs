//! Tasks that fail, and tasks that kill their workers.

use std::time::Duration;

use fiber::{Error, Journal, Pool, Result};
use fiber_test_support::scenario;

use super::{journal, note, variable};

fn options() -> Journal {
    let journal = journal();
    if variable("KEEP").is_empty() { journal } else { journal.keep_failures() }
}

fn odd_fails(x: u64) -> std::result::Result<u64, String> {
    note(x);
    assert!(x != 3, "three is odd");
    let fails = x % 2 == 1 && variable("MENDED").is_empty();
    if fails { Err(format!("{x} is odd")) } else { Ok(x) }
}

#[scenario("failing")]
fn failing() -> Result<()> {
    // One worker runs them in order: the last map has run its first task when the second fails.
    let pool = Pool::new(1)?.durable(options());
    for (x, result) in (0..).zip(pool.try_imap(odd_fails, 0..6)) {
        match result {
            Ok(result) => println!("{x} gives {result}"),
            Err(error) => println!("{x} fails: {error}"),
        }
    }
    match pool.retries(2).try_apply(odd_fails, 101).wait() {
        Ok(result) => println!("101 gives {result}"),
        Err(error) => println!("101 fails: {error}"),
    }
    println!("map {:?}", pool.try_map(odd_fails, [2, 7]).wait().map_err(|error| error.to_string()));
    Ok(())
}

/// A task kills its worker, and another one runs for too long.
#[scenario("abandoned")]
fn abandoned() -> Result<()> {
    let pool = Pool::new(2)?.durable(options()).max_deaths(1);
    let abort = |x: u64| {
        note(format!("abort {x}"));
        if x == 1 && variable("MENDED").is_empty() {
            eprintln!("the last line of {x}");
            std::process::abort();
        }
        x
    };
    let results: Vec<_> = pool.imap(abort, 0..3).wait().collect();
    for result in &results {
        match result {
            Ok(x) => println!("{x} returns"),
            Err(Error::WorkerDied { index, deaths, exit, .. }) => {
                println!("{index} dies: {deaths} {:?} {:?}", exit.reason, exit.tail);
            }
            Err(error) => println!("another error: {error}"),
        }
    }
    let sleep = |x: u64| {
        note(format!("sleep {x}"));
        if variable("MENDED").is_empty() {
            std::thread::sleep(Duration::from_secs(600));
        }
    };
    let is_mended = !variable("MENDED").is_empty();
    let limit = if is_mended { Duration::from_secs(60) } else { Duration::from_millis(50) };
    match pool.timeout(limit).apply(sleep, 5).wait() {
        Ok(()) => println!("5 returns"),
        Err(Error::TaskTimedOut { exit, .. }) => println!("5 times out: {:?}", exit.reason),
        Err(error) => println!("another error: {error}"),
    }
    Ok(())
}
