//! Programs whose tasks log.

use fiber::Pool;
use fiber_test_support::scenario;

/// Installs a subscriber before `fiber::init()`, so that all processes have it.
#[scenario("logging tasks")]
fn tasks() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stdout)
        .with_ansi(false)
        .with_env_filter("programs=info")
        .init();
    fiber::init();
    let pool = Pool::builder().name("speakers").processes(1).build().expect("the pool starts");
    pool.map(speak, 0..3).wait().expect("the tasks succeed");
    tracing::info!("outside of tasks");
}

fn speak(x: u32) {
    tracing::info!("item {x}");
}
