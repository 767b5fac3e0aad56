//! A program that detaches its calls.

use fiber::Pool;
use fiber_test_support::scenario;

#[scenario("detached")]
fn detached() {
    fiber::init();
    tracing_subscriber::fmt().with_writer(std::io::stdout).with_ansi(false).init();
    let pool =
        |name: &str| Pool::builder().name(name).processes(2).build().expect("the pool starts");
    let joined = pool("joined");
    joined.apply(|x: u32| assert!(x > 0, "too small"), 0).detach();
    joined.try_map(|x: u32| if x != 1 { Ok(x) } else { Err("odd") }, 0..3).detach();
    joined.max_deaths(1).apply(|code: i32| -> () { std::process::exit(code) }, 3).detach();
    joined.stop().wait().expect("the pool stops");
    joined.apply(|x: u32| x, 0).detach();

    let dropped = pool("dropped");
    dropped.apply(fiber_test_support::hang, ()).detach();
    drop(dropped);
    // The thread that logs runs its tasks in order: after this call, it has logged all failures.
    let last = pool("last");
    assert_eq!(last.apply(|x: u32| x, 1).wait().expect("the call succeeds"), 1);
}
