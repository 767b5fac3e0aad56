//! The programs for `fiber run`.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use fiber::sync::Event;
use fiber::{Pool, Process};
use tokio::signal::unix::{SignalKind, signal};

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
        "durable" => durable(),
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
        "resumes 1" => return resumes(1),
        "resumes 2" => return resumes(2),
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

/// Does six tasks, and keeps a list of those that are done on the volume. It waits to be lost in the
/// middle of each of its first `losses` starts, and ends with the exit code 3 after the last one.
fn resumes(losses: usize) -> ExitCode {
    let add = |file: &str, line: String| {
        let mut text = read(file);
        text.push_str(&line);
        // A file is replaced as a whole: the process may be killed at any time.
        std::fs::write(format!("{file}.new"), &text).unwrap();
        std::fs::rename(format!("{file}.new"), file).unwrap();
        text.lines().count()
    };
    fn read(file: &str) -> String {
        std::fs::read_to_string(file).unwrap_or_default()
    }
    let start = add("/persistent/starts", "a start\n".into());
    println!("start {start}");
    let done = read("/persistent/done");
    let left: Vec<u32> =
        (0..6).filter(|task| !done.lines().any(|line| line == task.to_string())).collect();
    let pool = Pool::new(2).unwrap();
    pool.wait_until_ready().wait().unwrap();
    let done = pool.imap(|task: u32| task, left.clone());
    for (number, task) in done.into_iter().enumerate() {
        let all = add("/persistent/done", format!("{}\n", task.unwrap()));
        if start <= losses && number == 2 / losses {
            println!("waits after {all} tasks");
            loop {
                std::thread::park();
            }
        }
        println!("done: {}", all - 1);
    }
    println!("left: {}", left.len());
    ExitCode::from(3)
}

/// Runs a durable task that ends when the program has got SIGTERM.
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
    pool.journal("/tmp/journal").apply(task, 1).wait().unwrap();
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
