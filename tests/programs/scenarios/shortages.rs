//! Programs that temporarily have no descriptors left.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fiber::Pool;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tracing_subscriber::filter::LevelFilter;

/// Prevents opening descriptors until it is dropped.
pub(super) struct Shortage(Rlimit);

impl Shortage {
    pub(super) fn begin() -> Shortage {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before })
            .expect("the limit can be lowered");
        Shortage(before)
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).expect("the limit can be restored");
    }
}

pub(super) fn log() {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false);
    log.with_writer(std::io::stdout).init();
}

fn begin(processes: usize) -> Pool {
    fiber::init();
    log();
    let pool = Pool::builder().name("short").processes(processes).build().expect("the pool starts");
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
    kill_process(process, Signal::KILL).expect("the process is a child of this one");
}

fn wait_until(reached: impl Fn() -> bool) {
    while !reached() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a line from the test.
pub(super) fn wait_for_word() {
    std::io::stdin().lock().lines().next();
}

/// Kills one of three workers during a map and a shortage.
pub(super) fn of_some() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    static ITEMS: AtomicU64 = AtomicU64::new(0);
    let pool = begin(3);
    // The iterator is as slow as the tasks, so that the feeder is not far ahead.
    let items = std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(1));
        (!ENOUGH.load(Ordering::SeqCst)).then(|| ITEMS.fetch_add(1, Ordering::SeqCst))
    });
    let map = pool.map(work, items);
    let victim = pool.apply(pid, 0).wait().expect("a worker returns its process id");
    let shortage = Shortage::begin();
    kill(victim);
    wait_for_word();
    println!("meanwhile {}", pool.apply(work, 21).wait().expect("the other workers run the task"));
    pool.wait_until_ready().wait().expect("the other workers are ready");
    println!("ready {}", pool.ready());
    drop(shortage);
    wait_until(|| pool.ready() == 3);
    ENOUGH.store(true, Ordering::SeqCst);
    let results = map.wait().expect("the map continues");
    assert!(
        results.into_iter().eq((0..ITEMS.load(Ordering::SeqCst)).map(|x| 2 * x)),
        "each result is correct"
    );
    println!("all right");
}

/// Scales a pool from one worker to three during a shortage.
pub(super) fn while_growing() {
    let pool = begin(1);
    let shortage = Shortage::begin();
    pool.scale(3).wait().expect("the reply does not wait for missing workers");
    println!("ready {}", pool.ready());
    wait_for_word();
    drop(shortage);
    wait_until(|| pool.ready() == 3);
    pool.scale(1).wait().expect("two workers stop");
    println!("ready {}", pool.ready());
}

/// Kills all workers during a shortage, which ends when the test says so.
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
