//! Programs and workers that SIGTERM asks to end.

use std::path::Path;
use std::time::{Duration, Instant};

use fiber::{Pool, Process};
use rustix::process::{Signal, kill_process, test_kill_process};

use super::{hang, wait_until};
use crate::program::pid;

/// Writes the id of this process into a file, at once for those that look.
fn announce(file: &str) {
    std::fs::write(format!("{file}.new"), std::process::id().to_string()).unwrap();
    std::fs::rename(format!("{file}.new"), file).unwrap();
}

fn announced(file: &str) -> rustix::process::Pid {
    wait_until(|| Path::new(file).exists());
    pid(std::fs::read_to_string(file).unwrap().parse().unwrap())
}

fn announce_and_hang(file: String) {
    announce(&file);
    hang();
}

/// A task that never ends the first time, and its nested process, get SIGTERM.
pub(super) fn endless_task() {
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
    wait_until(|| test_kill_process(nested).is_err());
    println!("result: {result}, deaths: {}", pool.stats().deaths);
}
