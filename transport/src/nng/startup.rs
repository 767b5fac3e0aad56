//! Room for nng's threads.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::RwLock;

/// The threads that nng starts with its first socket: seven, and some that others may start
/// meanwhile.
const THREADS: usize = 10;
/// Small: the C library keeps the stacks of threads that have ended, and they count towards a limit
/// of memory.
const STACK: usize = 64 << 10;

/// Checks, before nng starts for the first time, that its threads can be started. nng ends the
/// process if it can start only some of them: it frees what the others use.
///
/// # Errors
/// That the system has no room for them.
pub(super) fn check_room() -> io::Result<()> {
    static CHECKED: AtomicBool = AtomicBool::new(false);
    if CHECKED.load(Ordering::Acquire) {
        return Ok(());
    }
    let end = RwLock::new(());
    thread::scope(|threads| {
        // Held until all are there, or one is refused.
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
    fn there_is_room_where_nothing_is_short() {
        super::check_room().unwrap();
    }
}
