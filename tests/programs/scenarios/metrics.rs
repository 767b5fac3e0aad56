//! A program with a pool, which runs what its standard input asks for.

use std::io::BufRead;
use std::time::Duration;

use fiber::Pool;
use fiber_test_support::scenario;

fn square(x: u64) -> u64 {
    x * x
}

fn even(x: u64) -> Result<u64, String> {
    if x.is_multiple_of(2) { Ok(x) } else { Err(format!("{x} is odd")) }
}

fn abort() {
    std::process::abort();
}

fn nap(_: u64) {
    std::thread::sleep(Duration::from_millis(2));
}

#[scenario("pool on demand")]
fn pool_on_demand() {
    fiber::init();
    let pool =
        Pool::builder().name("squares").processes(2).start().wait().expect("the pool starts");
    pool.wait_until_ready().wait().expect("it gets ready");
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            "map" => {
                let squares = pool.map(square, 0..1_000).wait().expect("it works");
                assert!(squares.iter().zip(0..).all(|(found, x)| *found == x * x));
            }
            "fail" => {
                let results = pool.try_imap_unordered(even, 0..10).wait();
                assert_eq!(results.filter(Result::is_err).count(), 5);
            }
            "die" => drop(pool.apply(abort, ()).wait().expect_err("it dies")),
            "nap" => drop(pool.map(nap, 0..1_000).wait().expect("it works")),
            other => panic!("unknown word `{other}`"),
        }
        println!("done {line}");
    }
}
