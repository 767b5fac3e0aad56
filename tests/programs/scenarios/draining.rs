//! Programs and workers that SIGTERM asks to end.

use std::path::Path;
use std::time::{Duration, Instant};

use fiber::{Journal, Pool, Process};
use fiber_test_support::program::pid;
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;
use rustix::process::{Signal, kill_process, test_kill_process};

use super::hang;

/// Writes the id of this process into a file, at once for those that look.
fn announce(file: &str) {
    std::fs::write(format!("{file}.new"), std::process::id().to_string()).unwrap();
    std::fs::rename(format!("{file}.new"), file).unwrap();
}

fn announced(file: &str) -> rustix::process::Pid {
    wait_until("the test's file", || Path::new(file).exists());
    pid(std::fs::read_to_string(file).unwrap().parse().unwrap())
}

fn announce_and_hang(file: String) {
    announce(&file);
    hang();
}

/// A task that never ends the first time, and its nested process, get SIGTERM.
#[scenario("endless task")]
fn endless_task() {
    fn task(x: u64) -> u64 {
        if Path::new("nested").exists() {
            return x;
        }
        let nested = Process::spawn(announce_and_hang, "nested".to_string());
        announced("nested");
        announce("worker");
        drop(nested.wait());
        unreachable!("the nested process never ends");
    }
    fiber::init();
    let pool = Pool::new(1).unwrap();
    let call = pool.max_deaths(1).apply(task, 1);
    let (worker, nested) = (announced("worker"), announced("nested"));
    let start = Instant::now();
    kill_process(worker, Signal::TERM).unwrap();
    let result = call.wait().unwrap();
    println!("ended after its grace period: {}", start.elapsed() >= Duration::from_millis(300));
    wait_until("the end of the child", || test_kill_process(nested).is_err());
    println!("result: {result}, deaths: {}", pool.stats().deaths);
}

/// Reports a task, and waits for a file `go` if the task is one of the first two.
fn record_run(x: u64, folder: String) -> u64 {
    use std::io::Write;
    let folder = Path::new(&folder);
    std::fs::write(folder.join(format!("begun-{x}")), "").unwrap();
    wait_until("the test's file", || x > 1 || folder.join("go").exists());
    let runs = std::fs::File::options().create(true).append(true).open(folder.join("runs"));
    runs.unwrap().write_all(format!("{x}\n").as_bytes()).unwrap();
    x
}

fn folder() -> String {
    std::env::var("FOLDER").unwrap()
}

fn wait_until_begun(task: u64) {
    let begun = Path::new(&folder()).join(format!("begun-{task}"));
    wait_until("the task's start", || begun.exists());
}

/// A durable call of 1000 tasks, of which the first two wait.
#[scenario("durable map")]
fn durable_map() {
    fiber::init();
    let pool = Pool::new(2).unwrap().durable(Journal::at(format!("{}/journal", folder())));
    let tasks = (0..1000).map(|x| (x, folder()));
    let call = pool.map(record_run, tasks);
    std::thread::spawn(|| {
        (0..2).for_each(wait_until_begun);
        println!("two tasks run");
    });
    println!("sum: {}", call.wait().unwrap().iter().sum::<u64>());
}

/// Durable calls in a row, the second after a word.
#[scenario("durable calls")]
fn durable_calls() {
    fiber::init();
    let pool = Pool::new(1).unwrap().durable(Journal::at(format!("{}/journal", folder())));
    for x in 0..1000 {
        let call = pool.apply(record_run, (x, folder()));
        wait_until_begun(x);
        println!("task runs: {x}");
        println!("done: {}", call.wait().unwrap());
        if x == 0 {
            super::read_line();
        }
    }
}
