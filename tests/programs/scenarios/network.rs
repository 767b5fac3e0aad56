//! A program whose children connect by a network that fails.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use actix::prelude::{Actor, Context};
use fiber::{AsyncManager, Pool, Process};
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;

use super::{hang, read_line};

/// Lets children connect by the proxy in the environment. They write their parent's own address to
/// a file for it.
#[scenario("behind a proxy")]
fn behind_a_proxy() {
    let proxy = std::env::var("PROXY").expect("the test sets it");
    if let Ok(value) = std::env::var("FIBER_PARENT")
        && let Some((start, address)) = value.split_once(",nng:")
        && !proxy.ends_with(address)
    {
        let own = format!("parent.{}", std::process::id());
        std::fs::write(&own, format!("nng:{address}"))
            .expect("the working directory can be written to");
        std::fs::rename(own, "parent").expect("it can be renamed");
        let again =
            Command::new("/proc/self/exe").env("FIBER_PARENT", format!("{start},{proxy}")).exec();
        panic!("the program can't be started again: {again}");
    }
    fiber::init();
    let mut pool = None;
    let mut actors = Vec::new();
    while let Some(line) = read_line() {
        match &*line {
            "pool" => {
                let made = Pool::builder().processes(2).build().unwrap();
                drop(made.wait_until_ready());
                pool = Some(made);
            }
            "whole" => {
                let pool = pool.as_ref().expect("there is one");
                wait_until("work of both workers", || workers_at_work(pool) == 2);
                println!("2 workers");
            }
            "join" => {
                pool.take().expect("there is one").stop().wait().unwrap();
                println!("joined");
            }
            "actor" => {
                let actor = AsyncManager::start(|()| Answerer, ()).wait().unwrap();
                let pid = actor.send(Question).wait().unwrap();
                actors.push((actor, pid));
                println!("it answers");
            }
            "another actor" => {
                let (actor, first) = actors.last().expect("there is one");
                wait_until("the restart", || {
                    actor.send(Question).wait().is_ok_and(|pid| pid != *first)
                });
                println!("another answers");
            }
            "process" => {
                let process = Process::spawn(hang, ());
                process.started().wait().unwrap();
                println!("it runs");
                println!("it failed: {}", process.wait().unwrap_err());
            }
            other => panic!("`{other}` is no work"),
        }
    }
}

/// Returns how many workers of a pool of two run tasks.
fn workers_at_work(pool: &Pool) -> usize {
    if pool.ready_workers() < 2 {
        return pool.ready_workers();
    }
    let task = |_: u32| {
        std::thread::sleep(Duration::from_millis(20));
        std::process::id()
    };
    let pids = pool.chunk(1).map(task, 0..8).wait().unwrap();
    pids.into_iter().collect::<HashSet<_>>().len()
}

struct Answerer;

impl Actor for Answerer {
    type Context = Context<Self>;
}

#[fiber::message(u32)]
struct Question;

#[fiber::handlers]
impl Answerer {
    fn question(&mut self, _: Question) -> u32 {
        std::process::id()
    }
}
