//! The programs for `fiber run`.

use std::process::ExitCode;

use fiber::Pool;
use fiber_test_support::scenario;

#[scenario("cores")]
fn cores() {
    let pool = Pool::builder().build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    println!("workers: {}", pool.ready_workers());
}

#[scenario("exit 0")]
fn exit_with_code_0() {
    report();
}

#[scenario("exit 3")]
fn exit_with_code_3() -> ExitCode {
    report();
    ExitCode::from(3)
}

#[scenario("exit 99")]
fn exit_with_code_99() -> ExitCode {
    ExitCode::from(99)
}

#[scenario("exit 100")]
fn exit_with_code_100() -> ExitCode {
    ExitCode::from(100)
}

fn report() {
    println!("said in {}", std::env::current_dir().expect("there is one").display());
    println!("given: {:?}", std::env::var("GIVEN"));
    println!("arguments: {:?}", std::env::args().skip(1).collect::<Vec<_>>());
    eprintln!("complained");
}

#[scenario("speak")]
fn speak() {
    let say = |(): ()| println!("a worker speaks");
    let pool = Pool::builder().initializer(say, ()).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    // A worker that is killed may not have said all.
    pool.stop().wait().unwrap();
}

#[scenario("restarts")]
fn restarts() -> ExitCode {
    println!("start {}", std::env::var("FIBER_RESTARTS").unwrap_or_default());
    ExitCode::from(7)
}

#[scenario("abort")]
fn abort() {
    std::process::abort();
}

/// Runs a pool of two workers forever.
#[scenario("ready")]
fn ready() -> ! {
    let pool = Pool::builder().processes(2).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let done = pool.map(|_: u32| println!("a worker speaks"), 0..2).wait().unwrap();
    println!("ready: {}", done.len());
    fiber_test_support::hang()
}
