//! Programs that write a timeline.

use std::path::Path;
use std::time::Duration;

use fiber::Pool;
use fiber_test_support::scenario;

use super::wait_until;

/// Long tasks in threads, a task that ends its worker once, one that always does, and short tasks.
#[scenario("timeline")]
fn all() {
    fiber::init();
    let pool = Pool::builder().name("ovens").processes(2).threads_per_worker(2).build().unwrap();
    pool.map(bake, 0..12).wait().expect("the tasks succeed");
    let single = Pool::builder().name("kilns").processes(1).build().unwrap();
    single.apply(burst_once, 7).wait().expect("the second attempt succeeds");
    single.max_deaths(1).apply(burst, ()).wait().expect_err("it ends its worker");
    single.map(|x: u64| x, 0..100_000).wait().expect("the tasks succeed");
}

/// A long task whose worker is alive when the program is killed.
#[scenario("timeline until killed")]
fn until_killed() {
    fiber::init();
    let pool = Pool::builder().name("ovens").processes(1).build().unwrap();
    pool.map(bake, 0..3).wait().expect("the tasks succeed");
    println!("baked");
    let _last = pool.apply(|| wait_until(|| Path::new("never").exists()), ());
    wait_until(|| Path::new("never").exists());
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

fn burst_once(_: u64) {
    if Path::new("burst-before").exists() {
        return;
    }
    std::fs::write("burst-before", "").unwrap();
    // Until the pool knows that it runs this task.
    std::thread::sleep(Duration::from_millis(50));
    std::process::abort();
}

fn burst() {
    std::thread::sleep(Duration::from_millis(50));
    std::process::abort();
}
