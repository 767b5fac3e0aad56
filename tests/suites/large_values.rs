//! Large values: their memory is used again while they come, and goes back after the last one.

use actix::prelude::*;
use fiber::{AsyncManager, Process};
use fiber_test_support::wait::wait_until;

/// The size of a value: more than glibc keeps by itself, in bytes.
const LEN: usize = 40 << 20;
const PAGE: u64 = 4096;
const CALLS: u64 = 3;

struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

#[fiber::message(Vec<u8>)]
struct Data(Vec<u8>);

/// Asks for the page faults of the actor's process, and its memory in bytes.
#[fiber::message((u64, u64))]
struct Figures;

#[fiber::handlers]
impl Echo {
    fn data(&mut self, data: Data) -> Vec<u8> {
        data.0
    }

    fn figures(&mut self, _: Figures) -> (u64, u64) {
        figures()
    }
}

/// Returns the page faults of this process, and its memory in bytes without what is in files.
fn figures() -> (u64, u64) {
    let read = |name| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap();
    let (stat, status) = (read("stat"), read("status"));
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let faults = after_name.split(' ').nth(7).unwrap().parse().unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let memory: u64 = memory.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    (faults, memory << 10)
}

/// Sends large values to an actor and back. Returns the page faults of a call, in both processes.
fn call() -> u64 {
    let actor = AsyncManager::start(|| Echo, ()).wait().unwrap();
    let of_actor = || actor.send(Figures).wait().unwrap();
    let before = (figures().1, of_actor().1);
    let value: Vec<u8> = (0..=255).cycle().take(LEN >> 10).collect::<Vec<u8>>().repeat(1 << 10);
    let echo = || assert!(actor.send(Data(value.clone())).wait().unwrap() == value);
    (0..3).for_each(|_| echo());
    let faults = figures().0 + of_actor().0;
    (0..CALLS).for_each(|_| echo());
    let faults = figures().0 + of_actor().0 - faults;
    drop(value);
    let is_back = |memory: u64, before: u64| memory < before + LEN as u64 / 2;
    // Over nng, the runtime's thread receives values, and glibc keeps the free end of its heap.
    if !is_nng() {
        wait_until("the memory of values goes back", || {
            is_back(figures().1, before.0) && is_back(of_actor().1, before.1)
        });
    }
    faults / CALLS
}

fn is_nng() -> bool {
    std::env::var("FIBER_LINK").is_ok_and(|link| link == "nng")
}

#[test]
fn calls_with_large_values_use_their_memory_again_and_give_it_back() {
    // In a process of its own, in which no other test takes memory.
    let faults = Process::spawn(call, ()).wait().unwrap();
    // Over nng, the library has buffers of its own.
    let few = LEN as u64 / PAGE / 4;
    assert!(is_nng() || faults < few, "{faults} page faults for a value there and back");
}
