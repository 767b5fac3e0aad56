//! Programs that write a timeline.

use std::path::Path;
use std::time::Duration;

use fiber::Pool;
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;

/// Long tasks in threads, a task that ends its worker once, one that always does, and short tasks.
#[scenario("timeline")]
fn all() {
    fiber::init();
    let pool = Pool::builder().name("ovens").processes(2).threads_per_worker(2).build().unwrap();
    pool.map(bake, 0..12).wait().expect("the tasks succeed");
    let single = Pool::builder().name("kilns").processes(1).build().unwrap();
    let once = single.apply(burst_once, 7);
    let_burst(&single);
    once.wait().expect("the second attempt succeeds");
    let last = single.max_deaths(1).apply(burst, ());
    let_burst(&single);
    last.wait().expect_err("it ends its worker");
    single.map(|x: u64| x, 0..100_000).wait().expect("the tasks succeed");
}

/// Lets a task burst when the pool knows that it runs.
fn let_burst(pool: &Pool) {
    wait_until("a task runs", || !pool.stats().running().is_empty());
    std::fs::write("go", "").unwrap();
}

/// A long task whose worker is alive when the program is killed.
#[scenario("timeline until killed")]
fn until_killed() {
    fiber::init();
    let pool = Pool::builder().name("ovens").processes(1).build().unwrap();
    pool.map(bake, 0..3).wait().expect("the tasks succeed");
    println!("baked");
    let _last =
        pool.apply(|| wait_until("the end by the test", || Path::new("never").exists()), ());
    wait_until("the end by the test", || Path::new("never").exists());
}

/// Tasks that take the values of others, in two pools.
#[scenario("timeline of a graph")]
fn graph() {
    fiber::init();
    let (ovens, kilns) = (Pool::builder().name("ovens"), Pool::builder().name("kilns"));
    let ovens = ovens.processes(2).build().unwrap();
    let kilns = kilns.processes(1).build().unwrap();
    let baked = ovens.map(bake_one, 0..4).outputs();
    let sold = kilns.put(5_u64).unwrap();
    let stacked = kilns.apply(stack, (baked, sold)).output();
    let merged = ovens.map(bake_one, 0..3).reduce(merge).output().expect("there are tasks");
    let all = ovens.apply(merge, (stacked, merged)).wait().expect("the tasks succeed");
    println!("{all}");
}

/// Tasks of many calls, more than fit into a small file.
#[scenario("timeline of many calls")]
fn many_calls() {
    fiber::init();
    let pool = Pool::builder().name("presses").processes(2).build().unwrap();
    for _ in 0..300 {
        pool.map(|x: u64| x, 0..1000).wait().expect("the tasks succeed");
    }
}

fn bake(_: u64) {
    std::thread::sleep(Duration::from_millis(200));
}

fn bake_one(x: u64) -> u64 {
    bake(x);
    x
}

fn stack(baked: Vec<u64>, more: u64) -> u64 {
    bake(0);
    baked.iter().sum::<u64>() + more
}

fn merge(a: u64, b: u64) -> u64 {
    bake(0);
    a + b
}

fn burst_once(_: u64) {
    if Path::new("burst-before").exists() {
        return;
    }
    std::fs::write("burst-before", "").unwrap();
    burst();
}

fn burst() {
    wait_until("the word to go", || std::fs::remove_file("go").is_ok());
    std::process::abort();
}
