//! The promises of pools, tested with real processes.

mod calls;
mod cancelling;
mod deaths;
mod draining;
mod ends;
mod errors;
mod initializers;
mod inner;
mod iterators;
mod logs;
mod outputs;
mod reduce;
mod travelling;
mod values;
mod workers;

use std::time::Duration;

use fiber::Pool;

fn square(x: u64) -> u64 {
    x * x
}

fn pool(processes: usize) -> Pool {
    Pool::new(processes).expect("the pool starts")
}

/// Panics when it is dropped.
pub(crate) struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload is dropped")
    }
}

fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn pid_after(ms: u64) -> u32 {
    sleep_ms(ms);
    std::process::id()
}
