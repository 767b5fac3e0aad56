//! A pool counts primes in worker processes. An actor in a process of its own keeps the total.

use fiber::prelude::*;

const BLOCK: u64 = 10_000;

/// Counts the primes of one block of numbers. Any `fn` is a task function: nothing is registered.
fn count_primes(block: u64, total: RemoteAddr<Total>) -> fiber::Result<u64> {
    let numbers = block * BLOCK..(block + 1) * BLOCK;
    let primes = numbers.filter(|number| is_prime(*number)).count() as u64;
    total.send(Add(primes)).wait()?;
    Ok(primes)
}

fn is_prime(number: u64) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number > 1 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}

/// A plain actix actor. Its address works in every process of the program.
struct Total(u64);

impl Actor for Total {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Add(u64);

#[fiber::handlers]
impl Total {
    fn add(&mut self, Add(primes): Add) -> u64 {
        self.0 += primes;
        self.0
    }
}

/// Returns how many primes `blocks` blocks have: the sum of the results, and the actor's total.
fn count(blocks: u64) -> fiber::Result<(u64, u64)> {
    let total = AsyncManager::start(Total, 0).wait()?;
    let pool = Pool::builder().name("primes").build()?; // a worker for each core
    let items: Vec<_> = (0..blocks).map(|block| (block, total.addr())).collect();
    let primes = pool.try_map(count_primes, items).wait()?; // in async code: `.await`
    Ok((primes.iter().sum(), total.send(Add(0)).wait()?))
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let (primes, total) = count(200)?;
    println!("{primes} primes; the actor has counted {total}");
    Ok(())
}

#[cfg(test)]
mod tests {
    // Lets this test binary start worker processes: once in a test binary.
    fiber::test_harness!();

    #[test]
    fn results_and_actor_agree() {
        let (primes, total) = super::count(3).expect("workers and actor start");
        assert_eq!((primes, total), (3245, 3245));
    }
}
