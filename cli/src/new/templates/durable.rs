//! A sweep that goes on where it was: kill the program at any moment, and start it again.

use std::thread::sleep;
use std::time::Duration;

use fiber::prelude::*;

const SEEDS: u64 = 40;

/// Stands for hours of work. Its result must depend on its argument alone.
fn simulate(seed: u64) -> f64 {
    println!("simulating {seed}");
    sleep(Duration::from_millis(100));
    (seed as f64).sqrt()
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    // Records each outcome in the folder `fiber-journals/sweep` before it is delivered.
    let pool = Pool::builder().name("sweep").build()?.durable("sweep");
    let mut sum = 0.0;
    for (seed, root) in (0..SEEDS).zip(pool.imap(simulate, 0..SEEDS).wait()) {
        let root = root?;
        println!("seed {seed}: {root:.3}");
        sum += root;
    }
    println!("sum {sum:.3}");
    Ok(())
}

#[cfg(test)]
mod tests {
    // Lets this test binary start worker processes: once in a test binary.
    fiber::test_harness!();

    #[test]
    fn workers_simulate() {
        let pool = fiber::Pool::new(2).expect("the configuration is right");
        let roots = pool
            .map(super::simulate, [4, 9])
            .wait()
            .expect("no task fails");
        assert_eq!(roots, [2.0, 3.0]);
    }
}
