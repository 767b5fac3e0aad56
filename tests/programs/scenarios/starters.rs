//! Programs whose tasks start other programs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fiber::{Pool, Process};
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;
use rustix::process::{Signal, kill_process};

use super::{hang, pid, read_line};

/// Starts a program as shells do, with a child that it does not end itself.
#[allow(clippy::zombie_processes)] // It outlives this process, unless fiber ends it.
fn start_program() {
    Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().expect("there is a shell");
}

/// Starts a program in this process's group and one in that of a nested process, creates a file
/// when both run, and hangs.
fn start_everywhere(file: String) {
    start_program();
    let nested = |file: String| {
        start_program();
        std::fs::write(file, std::process::id().to_string())
            .expect("the working directory can be written to");
        hang();
    };
    drop(Process::spawn(nested, file));
    hang();
}

/// For each line that it reads, lets a worker start programs, and then loses the worker in the way
/// of that line, or keeps it.
#[scenario("starters")]
fn on_demand() {
    fiber::init();
    let pool = Pool::new(1).expect("a pool can be made").max_deaths(1);
    let mut kept = Vec::new();
    while let Some(way) = read_line() {
        let began = || Path::new(&way).exists();
        let start = || pool.apply(start_everywhere, way.clone());
        match &*way {
            "time out" => {
                let mut limit = Duration::from_secs(1);
                while !began() {
                    pool.timeout(limit).apply(start_everywhere, way.clone()).wait().unwrap_err();
                    limit *= 2;
                }
            }
            "cancel" => {
                let mut call = start();
                wait_until("the start", began);
                call.cancel();
            }
            "kill" => {
                let worker = pool.apply(std::process::id, ()).wait().expect("it works");
                let call = start();
                wait_until("the start", began);
                kill_process(pid(worker), Signal::KILL).expect("it runs");
                call.wait().unwrap_err();
            }
            "hang" => {
                kept.push(start());
                wait_until("the start", began);
            }
            other => panic!("`{other}` is no way"),
        }
        println!("{way}: done");
    }
}

/// Starts a hundred workers, each of which starts a program.
#[scenario("many starters")]
fn many() {
    fiber::init();
    let pool = Pool::new(100).expect("a pool can be made");
    let start = |_: u32| {
        start_program();
        hang();
    };
    let _calls = pool.map(start, 0..100);
    hang();
}
