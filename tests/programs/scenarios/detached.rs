//! A program that does not look at what becomes of its calls.

use fiber::Pool;

pub(super) fn detached() {
    fiber::init();
    tracing_subscriber::fmt().with_writer(std::io::stdout).with_ansi(false).init();
    let pool =
        |name: &str| Pool::builder().name(name).processes(2).build().expect("a pool can be made");
    let joined = pool("joined");
    joined.apply(|x: u32| assert!(x > 0, "too small"), 0).detach();
    joined.try_map(|x: u32| if x != 1 { Ok(x) } else { Err("odd") }, 0..3).detach();
    joined.max_deaths(1).apply(|code: i32| -> () { std::process::exit(code) }, 3).detach();
    joined.stop().wait().expect("all calls end");
    joined.apply(|x: u32| x, 0).detach();

    let dropped = pool("dropped");
    dropped.apply(|_: u32| std::thread::park(), 0).detach();
    drop(dropped);
    // What is left to be logged comes from a thread that does one thing after the other.
    let last = pool("last");
    assert_eq!(last.apply(|x: u32| x, 1).wait().expect("it works"), 1);
}
