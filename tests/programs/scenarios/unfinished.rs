//! A program whose processes print lines without an end, and are killed as soon as their work is
//! done.

use std::time::Duration;

use actix::{Actor, Context};
use fiber::{AsyncManager, Pool, Process, Ring, RingNode};
use fiber_test_support::scenario;

use super::hang;

struct Printer;

impl Actor for Printer {
    type Context = Context<Self>;
}

#[fiber::message]
struct Print(String);

#[fiber::handlers]
impl Printer {
    fn print(&mut self, Print(text): Print) {
        print!("{text}");
    }
}

#[scenario("unfinished lines")]
fn lines() {
    fiber::init();
    let print = |text: String| print!("{text}");

    let pool = Pool::new(1).unwrap();
    pool.apply(print, "<one task>".to_string()).wait().unwrap();
    drop(pool);

    let pool = Pool::new(1).unwrap();
    pool.map(print, (0..1000).map(|n| format!("<task {n}>"))).wait().unwrap();
    drop(pool);

    let pool = Pool::builder().processes(1).threads_per_worker(2).build().unwrap();
    pool.apply(print, "<a thread>".to_string()).wait().unwrap();
    drop(pool);

    // The second task hangs. The output of the first arrives all the same.
    let pool = Pool::builder()
        .processes(1)
        .initializer(print, "<initializer>".to_string())
        .build()
        .unwrap();
    let print_or_hang = |text: String| if text.is_empty() { hang() } else { print!("{text}") };
    let limited = pool.timeout(Duration::from_secs(1)).max_deaths(1);
    limited.map(print_or_hang, ["<before a timeout>".into(), String::new()]).wait().unwrap_err();
    drop(pool);

    Process::spawn(print, "<process>".into()).wait().unwrap();

    let manager = AsyncManager::start(|| Printer, ()).wait().unwrap();
    manager.send(Print("<actor>".into())).wait().unwrap();
    drop(manager);

    Ring::run(2, |node: RingNode| print!("<rank {}>", node.rank()), ()).wait().unwrap();
}
