//! Programs that have no descriptors left for a while.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fiber::Pool;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tracing_subscriber::filter::LevelFilter;

/// No descriptor can be opened while this is there.
pub(super) struct Shortage(Rlimit);

impl Shortage {
    pub(super) fn begin() -> Shortage {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before })
            .expect("less is allowed");
        Shortage(before)
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).expect("as much as before is allowed");
    }
}

pub(super) fn log() {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false);
    log.with_writer(std::io::stdout).init();
}

fn begin(processes: usize) -> Pool {
    fiber::init();
    log();
    let pool =
        Pool::builder().name("short").processes(processes).build().expect("a pool can be made");
    pool.wait_until_ready().wait().expect("workers can be started");
    pool
}

fn work(x: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(1));
    2 * x
}

fn pid(_: u32) -> u32 {
    std::thread::sleep(Duration::from_millis(100));
    std::process::id()
}

pub(super) fn kill(process: u32) {
    let process = Pid::from_raw(process as i32).expect("0 is no process");
    kill_process(process, Signal::KILL).expect("it is a child of this process");
}

fn wait_until(reached: impl Fn() -> bool) {
    while !reached() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a word of whoever runs this program.
pub(super) fn wait_for_word() {
    std::io::stdin().lock().lines().next();
}

/// One of three workers dies in the middle of a map.
pub(super) fn of_some() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    static ITEMS: AtomicU64 = AtomicU64::new(0);
    let pool = begin(3);
    // As slow as its tasks: the feeder is not far ahead of them.
    let items = std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(1));
        (!ENOUGH.load(Ordering::SeqCst)).then(|| ITEMS.fetch_add(1, Ordering::SeqCst))
    });
    let map = pool.map(work, items);
    let victim = pool.apply(pid, 0).wait().expect("a worker says who it is");
    let shortage = Shortage::begin();
    kill(victim);
    wait_for_word();
    println!("meanwhile {}", pool.apply(work, 21).wait().expect("others work"));
    pool.wait_until_ready().wait().expect("those that can be had are ready");
    println!("ready {}", pool.ready());
    drop(shortage);
    wait_until(|| pool.ready() == 3);
    ENOUGH.store(true, Ordering::SeqCst);
    let results = map.wait().expect("the map goes on");
    assert!(
        results.into_iter().eq((0..ITEMS.load(Ordering::SeqCst)).map(|x| 2 * x)),
        "each result is right"
    );
    println!("all right");
}

/// A pool of one worker is to have three.
pub(super) fn while_growing() {
    let pool = begin(1);
    let shortage = Shortage::begin();
    pool.scale(3).wait().expect("a pool works with those that it has");
    println!("ready {}", pool.ready());
    wait_for_word();
    drop(shortage);
    wait_until(|| pool.ready() == 3);
    pool.scale(1).wait().expect("two are let go");
    println!("ready {}", pool.ready());
}

/// All workers die. Whoever runs this program ends the shortage, or does not.
pub(super) fn of_all() {
    let pool = begin(2);
    let workers: std::collections::BTreeSet<_> =
        pool.map(pid, 0..8).wait().unwrap().into_iter().collect();
    let shortage = Shortage::begin();
    workers.into_iter().for_each(kill);
    wait_until(|| pool.ready() == 0);
    let call = pool.apply(work, 21);
    let freeing = std::thread::spawn(move || {
        wait_for_word();
        drop(shortage);
    });
    match call.wait() {
        Ok(result) => println!("done {result}"),
        Err(error) => println!("failed {error}"),
    }
    drop(freeing);
}
