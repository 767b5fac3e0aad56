//! The programs for `fiber run`.

use std::process::ExitCode;
use std::time::Duration;

use fiber::{Pool, Process};

use crate::tasks;

pub(crate) fn run(name: &str) -> ExitCode {
    // Fast heartbeats keep the tests short.
    fiber::init_with(|config| {
        config.heartbeat = Duration::from_millis(200);
        config.heartbeat_timeout = Duration::from_secs(2);
    });
    match name {
        "pi" => tasks::pi(2),
        "ready" => ready(),
        "exit 3" => {
            println!("said");
            eprintln!("complained");
            return ExitCode::from(3);
        }
        "abort" => std::process::abort(),
        "hungry" => tasks::eat(),
        "limits" => println!("limits: {}", tasks::limits()),
        "environment" => environment(),
        "persistent" => crate::persistent::run().expect("the example works"),
        other => panic!("there is no scenario `{other}`"),
    }
    ExitCode::SUCCESS
}

/// Runs a pool of two workers forever.
fn ready() {
    let pool =
        Pool::builder().processes(2).meta(fiber::Meta::new().memory(64 << 20)).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let hosts = pool.map(|_: u32| println!("a worker speaks"), 0..2).wait().unwrap();
    println!("ready: {}", hosts.len());
    loop {
        std::thread::park();
    }
}

/// Prints the environment and arguments of the program and its workers.
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
    println!("workers: {}", pool.ready());
}
