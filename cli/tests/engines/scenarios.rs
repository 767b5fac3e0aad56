//! The programs for `fiber run`.

use std::process::ExitCode;
use std::sync::OnceLock;

use fiber::sync::Event;
use fiber::{Journal, Pool, Process};
use fiber_test_support::{scenario, tasks};
use tokio::signal::unix::{SignalKind, signal};

#[scenario("pi")]
fn pi() {
    tasks::pi(2);
}

#[scenario("exit 3")]
fn exit_with_code_3() -> ExitCode {
    println!("said");
    eprintln!("complained");
    ExitCode::from(3)
}

#[scenario("abort")]
fn abort() {
    std::process::abort();
}

#[scenario("hungry")]
fn hungry() {
    tasks::eat();
}

#[scenario("limits")]
fn limits() {
    println!("limits: {}", tasks::limits());
}

#[scenario("persistent")]
fn persistent() {
    crate::persistent::run().expect("the example works");
}

#[scenario("resumes 1")]
fn resumes_once() -> ExitCode {
    resumes(1)
}

#[scenario("resumes 2")]
fn resumes_twice() -> ExitCode {
    resumes(2)
}

/// Runs a pool of two workers forever.
#[scenario("ready")]
fn ready() {
    let pool =
        Pool::builder().processes(2).meta(fiber::Meta::new().memory(64 << 20)).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let hosts = pool.map(|_: u32| println!("a worker speaks"), 0..2).wait().unwrap();
    println!("ready: {}", hosts.len());
    fiber_test_support::hang()
}

/// Runs one pool of two workers after the other.
#[scenario("pools")]
fn pools() {
    for number in 0..3 {
        let pool = Pool::new(2).unwrap();
        pool.wait_until_ready().wait().unwrap();
        println!(
            "sum: {}",
            pool.map(|x: u32| x + 1, 0..4).wait().unwrap().iter().sum::<u32>() + number
        );
    }
}

/// Does nothing but say so.
#[scenario("waits")]
fn waits() {
    println!("waits");
    fiber_test_support::hang()
}

/// Runs a durable map of six tasks in `losses + 1` starts, which do as many each. Each start but
/// the last one waits for its end.
fn resumes(losses: u64) -> ExitCode {
    static END: OnceLock<u64> = OnceLock::new();
    let starts = "/persistent/starts";
    let before = std::fs::read_to_string(starts).unwrap_or_default();
    std::fs::write(starts, format!("{before}a start\n")).unwrap();
    let start = before.lines().count() as u64 + 1;
    println!("start {start}");
    let end = 6 * start.min(losses + 1) / (losses + 1);
    let remember = |end: u64| END.set(end).unwrap();
    let pool = Pool::builder().processes(2).initializer(remember, end).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let square = |task: u64| {
        while task >= *END.get().unwrap() {
            std::thread::park();
        }
        task * task
    };
    let squares = pool.durable(Journal::at("/persistent/journal")).imap(square, 0..6);
    for (task, square) in (0..).zip(squares) {
        assert_eq!(square.unwrap(), task * task);
        println!("done: {task}");
        if start <= losses && task + 1 == end {
            println!("waits after {end} tasks");
            fiber_test_support::hang()
        }
    }
    println!("left: {}", 6 - pool.stats().tasks.recorded);
    ExitCode::from(3)
}

/// Runs a durable task that ends when the program has got SIGTERM.
#[scenario("durable")]
fn durable() {
    static OPEN: OnceLock<Event> = OnceLock::new();
    let open = Event::new().unwrap();
    let remember = |event: Event| drop(OPEN.set(event));
    let pool = Pool::builder().processes(1).initializer(remember, open.clone()).build().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut signals = signal(SignalKind::terminate()).unwrap();
            signals.recv().await;
            open.set().await.unwrap();
        });
    });
    let task = |x: u64| {
        println!("the task runs");
        OPEN.get().unwrap().wait_set().wait().unwrap();
        println!("the task ends");
        x
    };
    pool.durable(Journal::at("/tmp/journal")).apply(task, 1).wait().unwrap();
    fiber_test_support::hang()
}

/// Prints the environment and arguments of the program and its workers.
#[scenario("environment")]
fn environment() {
    let see = || {
        format!(
            "{:?} {:?}",
            std::env::var("GIVEN").ok(),
            std::env::args().skip(1).collect::<Vec<_>>()
        )
    };
    println!("program: {}", see());
    println!("worker: {}", Process::spawn(see, ()).wait().unwrap());
    let pool = Pool::builder().build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    println!("workers: {}", pool.ready_workers());
}
