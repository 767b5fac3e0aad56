//! Calls that can't be durable.

use actix::prelude::*;
use fiber::{Error, Journal, Pipe, Pool, Process, Queue, RemoteAddr, Result};
use fiber_test_support::scenario;

use super::{durable_pool, journal, square, variable};

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        other => panic!("it was not refused: {other:?}"),
    }
}

struct Idle;

impl Actor for Idle {
    type Context = Context<Idle>;
}

fn with_pipe(_: Pipe<u64, u64>) {}

#[scenario("handles")]
fn handles() -> Result<()> {
    let pool = durable_pool()?;
    let queue = Queue::<u64>::new()?;
    let with_queue = |_: u64, queue: Queue<u64>| queue.put(1).wait();
    println!("queue: {}", refusal(pool.try_apply(with_queue, (1, queue.clone())).wait()));
    println!("map: {}", refusal(pool.try_map(with_queue, [(1, queue)]).wait()));
    let broadcast = pool.broadcast(5_u64)?;
    let with_broadcast = |value: fiber::Broadcast<u64>| value.get().map(|value| *value);
    println!("broadcast: {}", refusal(pool.try_apply(with_broadcast, broadcast).wait()));
    let (sender, _receiver) = Pipe::<u64, u64>::new()?;
    println!("pipe: {}", refusal(pool.apply(with_pipe, sender).wait()));
    System::new().block_on(async {
        let addr = RemoteAddr::export(Idle.start())?;
        let with_addr = |_: Option<RemoteAddr<Idle>>| {};
        println!("address: {}", refusal(pool.apply(with_addr, Some(addr)).await));
        println!("none: {:?}", pool.apply(with_addr, None).await);
        Result::<()>::Ok(())
    })?;
    // In a stream, the item alone fails.
    let results: Vec<_> = pool
        .imap(
            |x: u64, queue: Option<Queue<u64>>| x + u64::from(queue.is_some()),
            [(1, None), (2, Some(Queue::new()?)), (3, None)],
        )
        .wait()
        .map(|result| result.ok())
        .collect();
    println!("imap: {results:?}");
    Ok(())
}

#[scenario("in a task")]
fn in_a_task() -> Result<()> {
    let inner = |path: String| {
        let pool = Pool::new(1)?.durable(Journal::at(path));
        let error = pool.map(square, 0..3).wait().unwrap_err();
        let single = pool.apply(square, 3).wait().unwrap_err();
        assert_eq!(error.to_string(), single.to_string());
        Result::<String>::Ok(error.to_string())
    };
    let path = variable(crate::sweep::JOURNAL);
    println!("task: {}", durable_pool()?.try_apply(inner, path.clone()).wait()?);
    println!("process: {}", Process::builder().try_spawn(inner, path).wait()?);
    Ok(())
}

#[scenario("closures")]
fn closures() -> Result<()> {
    let pool = durable_pool()?;
    assert_eq!(pool.apply(|x: u64| x + 1, 1).wait()?, 2);
    println!("apply: {}", refusal(pool.apply(|x: u64| x + 2, 1).wait()));
    assert_eq!(pool.apply(|x: u64| (x + 2) as f64, 1).wait()?, 3.0);
    let named = Pool::new(1)?.durable(journal().call("another"));
    assert_eq!(named.apply(|x: u64| x + 3, 1).wait()?, 4);
    // Calls of many tasks are told apart by their order.
    assert_eq!(pool.map(|x: u64| x + 1, [1]).wait()?, [2]);
    assert_eq!(pool.map(|x: u64| x + 2, [1]).wait()?, [3]);
    let reserved = Pool::new(1)?.durable(journal().call("#0"));
    println!("reserved: {}", refusal(reserved.map(square, [1]).wait()));
    Ok(())
}

/// Keeps the journal open until a line comes in.
#[scenario("waiting")]
fn waiting() -> Result<()> {
    let pool = durable_pool()?;
    println!("{:?}", pool.map(square, 0..3).wait()?);
    println!("open");
    std::io::stdin().read_line(&mut String::new()).expect("it can be read");
    Ok(())
}

/// Fills its disk: files can't grow beyond a limit.
#[scenario("no room")]
fn no_room() -> Result<()> {
    let pool = durable_pool()?;
    pool.wait_until_ready().wait()?;
    let limited = !variable("LIMIT").is_empty();
    let large = |x: u64| vec![x as u8; 20_000];
    pool.map(large, 0..10).wait()?;
    if limited {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let (current, maximum) = (Some(1 << 20), None);
        setrlimit(Resource::Fsize, Rlimit { current, maximum }).expect("it can be lowered");
    }
    let results: Vec<_> = pool.imap(large, 0..1000).wait().collect();
    let returned = results.iter().filter(|result| result.is_ok()).count();
    println!("returned {}", if returned == 1000 { "all" } else { "some" });
    if let Some(Err(error)) = results.last() {
        assert!(matches!(error, Error::Journal { .. }), "{error}");
        println!("stream: {error}");
        let error = pool.apply(large, 5000).wait().unwrap_err();
        assert!(matches!(error, Error::Journal { .. }), "{error}");
        let error = pool.apply(large, pool.put(5001)?).wait().unwrap_err();
        assert!(matches!(error, Error::Journal { .. }), "{error}");
        let error = pool.map(large, 5000..6000).wait().unwrap_err();
        assert!(matches!(error, Error::Journal { .. }), "{error}");
    }
    pool.map(large, 0..1000).detach();
    pool.stop().wait()?;
    println!("stopped");
    Ok(())
}
