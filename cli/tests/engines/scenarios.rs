//! The programs that `fiber run` is given.

use std::process::ExitCode;
use std::time::Duration;

use fiber::{Pool, Process};

pub(crate) fn run(name: &str) -> ExitCode {
    // Deaths are to be seen soon, so that tests are short.
    fiber::init_with(|config| {
        config.heartbeat = Duration::from_millis(200);
        config.heartbeat_timeout = Duration::from_secs(2);
    });
    match name {
        "pi" => pi(),
        "ready" => ready(),
        "exit 3" => {
            println!("said");
            eprintln!("complained");
            return ExitCode::from(3);
        }
        "abort" => std::process::abort(),
        "hungry" => hungry(),
        "limits" => println!("limits: {}", limits()),
        "environment" => environment(),
        "persistent" => crate::persistent::run().expect("the example works"),
        other => panic!("there is no scenario `{other}`"),
    }
    ExitCode::SUCCESS
}

fn pi() {
    let inside = |n: u64| {
        let (x, y) = (((n % 1000) as f64 + 0.5) / 1000.0, ((n / 1000) as f64 + 0.5) / 1000.0);
        x * x + y * y < 1.0
    };
    let pool = Pool::builder().processes(2).start().wait().unwrap();
    let hits = pool.map(inside, 0..1_000_000).wait().unwrap();
    println!("pi: {:.2}", 4.0 * hits.iter().filter(|hit| **hit).count() as f64 / 1e6);
}

/// Two workers, for ever.
fn ready() {
    let pool = Pool::builder().processes(2).meta(fiber::Meta::new().memory(64 << 20)).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let hosts = pool.map(|_: u32| println!("a worker speaks"), 0..2).wait().unwrap();
    println!("ready: {}", hosts.len());
    loop {
        std::thread::park();
    }
}

fn hungry() {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(vec![1; 1 << 20]);
    }
}

fn limits() -> String {
    let read = |paths: &[&str]| {
        let text = paths.iter().find_map(|path| std::fs::read_to_string(path).ok());
        text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join("/")
    };
    let memory = read(&["/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"]);
    let quota = read(&["/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max"]);
    format!("{memory} {quota}")
}

/// What it was told, and what its workers know of it.
fn environment() {
    let see = || format!("{:?} {:?}", std::env::var("TOLD").ok(), std::env::args().skip(1).collect::<Vec<_>>());
    println!("program: {}", see());
    println!("worker: {}", Process::spawn(see, ()).unwrap().wait().unwrap());
    let pool = Pool::builder().build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    println!("workers: {}", pool.ready());
}
