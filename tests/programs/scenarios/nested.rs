//! Programs whose tasks start pools of their own.

use std::sync::LazyLock;

use fiber::{Error, Pool};
use fiber_test_support::scenario;

use super::{hang, read_line};

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(2).expect("a pool can be made"));

/// Each process that runs it makes the pool again.
fn descend(levels: u32) -> Result<(), Error> {
    match levels {
        0 => Ok(()),
        _ => POOL.try_map(descend, [levels - 1; 2]).wait().map(drop),
    }
}

#[scenario("a pool in a static")]
fn in_a_static() {
    fiber::init();
    println!("{}", descend(6).expect_err("so many processes are not allowed"));
    read_line();
}

/// Starts a process below the one that runs it, which is another one each time.
fn use_one() -> Result<u32, Error> {
    Pool::new(1)?.apply(|| 7, ()).wait()
}

/// Keeps a process at each of `levels` levels below this one, and hangs at the last but one.
fn keep(levels: u32) -> Result<(), Error> {
    let pool = Pool::new(1)?.max_deaths(1);
    if levels > 1 {
        return pool.try_apply(keep, levels - 1).wait();
    }
    pool.apply(|| 7, ()).wait()?;
    println!("holder {}", std::process::id());
    hang();
    Ok(())
}

/// As many processes as there may be are kept, until the process dies that has started the last.
#[scenario("a holder of seats dies")]
fn dies() {
    fiber::init();
    let levels = std::env::args().nth(1).expect("an argument says it");
    let levels: u32 = levels.parse().expect("it is a number");
    let pool = Pool::new(2).expect("a pool can be made").max_deaths(1);
    let kept = pool.try_apply(keep, levels);
    read_line();
    println!("meanwhile: {}", pool.try_apply(use_one, ()).wait().expect_err("no seat is left"));
    println!("then: {}", kept.wait().expect_err("it is killed"));
    pool.try_apply(use_one, ()).wait().expect("the seats have come back");
    println!("works again");
}

#[scenario("fewer nested workers")]
fn fewer() {
    fiber::init();
    let sum = || -> Result<u64, Error> {
        let pool = Pool::new(3)?;
        let squares = pool.map(|x: u64| x * x, 0..10).wait()?;
        Ok(squares.into_iter().sum())
    };
    println!(
        "sum {}",
        Pool::new(1).and_then(|pool| pool.try_apply(sum, ()).wait()).expect("it works")
    );
}
