//! The check whether nng's threads can start.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::RwLock;

/// The threads to check for: nng starts seven with its first socket, and other code may start some
/// meanwhile.
const THREADS: usize = 10;
/// The stack size of the test threads: small, because the C library keeps the stacks of ended
/// threads, which count towards a memory limit.
const STACK: usize = 64 << 10;

/// Checks, before nng starts for the first time, that its threads can start. If nng can start only
/// some of them, it frees memory that these use, which crashes the process.
///
/// # Errors
/// The system's error, if it can't start that many threads.
pub(super) fn check_room() -> io::Result<()> {
    // nng's threads serve the process.
    static CHECKED: AtomicBool = AtomicBool::new(false);
    if CHECKED.load(Ordering::Acquire) {
        return Ok(());
    }
    let end = RwLock::new(());
    thread::scope(|threads| {
        // Held until all threads run, or one can't start.
        let _not_yet = end.write();
        for _ in 0..THREADS {
            thread::Builder::new().stack_size(STACK).spawn_scoped(threads, || drop(end.read()))?;
        }
        io::Result::Ok(())
    })?;
    CHECKED.store(true, Ordering::Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_threads_can_start_without_limits() {
        super::check_room().unwrap();
    }
}
