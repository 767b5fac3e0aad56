//! Programs that export spans by OpenTelemetry.

use std::path::Path;

use fiber::{Error, Pool};
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;
use tracing::info_span;

/// A call in a span, to two workers, that fails once. The program ends at once after it.
#[scenario("traced tasks")]
fn tasks() {
    start();
    let pool = Pool::builder().name("tracers").processes(2).build().expect("the pool starts");
    let report = info_span!("report").entered();
    let calls = pool.map(work, 0..20);
    let failing = pool.apply(|| panic!("no paper"), ());
    drop(report);
    calls.wait().expect("the tasks succeed");
    assert!(matches!(failing.wait(), Err(Error::Task { .. })));
    println!("head {}", std::process::id());
}

/// Waits until both workers work, so that each has a task.
fn work(x: u64) {
    let _inner = info_span!("inner").entered();
    std::fs::write(format!("worker-{}", std::process::id()), "").expect("it can be written");
    let workers = || {
        let files = std::fs::read_dir(".").expect("the directory can be read").flatten();
        files.filter(|file| file.file_name().to_string_lossy().starts_with("worker-")).count()
    };
    wait_until("both workers", || workers() == 2);
    tracing::info!("item {x}");
}

/// Many tasks outside of a span.
#[scenario("many traced tasks")]
fn many_tasks() {
    start();
    let pool = Pool::new(2).expect("the pool starts");
    pool.map(|x: u64| x, 0..3000).wait().expect("the tasks succeed");
}

/// A task whose function makes a pool. A signal ends the program.
#[scenario("traced nested pools")]
fn nested() {
    start();
    let pool = Pool::builder().name("outer").processes(1).build().expect("the pool starts");
    let _report = info_span!("report").entered();
    let outer = || {
        let pool = Pool::builder().name("inner").processes(1).build().expect("the pool starts");
        pool.map(|x: u64| x, 0..3).wait().expect("the tasks succeed");
    };
    pool.apply(outer, ()).wait().expect("the task succeeds");
    println!("done");
    wait_until("the end by the test", || Path::new("never").exists());
}

fn start() {
    if let Err(error) = fiber::opentelemetry::init() {
        println!("{error}");
        std::process::exit(3);
    }
    fiber::init();
}
