//! A pool whose workers a command starts, by a backend of the program's own.
//!
//!     cargo run -p fiber-examples --example launcher
//!     FIBER_LAUNCHER_COMMAND="taskset -c 0" cargo run -p fiber-examples --example launcher

mod backend;

use fiber::prelude::*;

/// Returns how nice the process is that runs this task.
fn niceness() -> i32 {
    rustix::process::nice(0).unwrap_or(0)
}

#[fiber::main]
async fn main() -> fiber::Result<()> {
    fiber::init_with(|config| config.backend = "launcher".into());
    let pool = Pool::builder().processes(2).start().await?;
    println!("niceness here: {}", niceness());
    println!("niceness of a worker: {}", pool.apply(niceness, ()).await?);
    Ok(())
}
