//! Processes that `fork()` makes of one of fiber's.
//!
//! A fork has a copy of the memory, and none of the threads: nobody there would answer, and a lock
//! may be held for good. It shares sockets, files and memory with the original, and children of the
//! original are none of its own. So in a fork all of fiber's operations are errors, and what drops
//! or ends does nothing.

#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{Error, Result};

static IS_FORKED: AtomicBool = AtomicBool::new(false);
/// The process with fiber's threads, once there are any.
static ORIGINAL: AtomicU32 = AtomicU32::new(0);

/// Notes that this process has fiber's threads from now on: a fork of it has lost them.
pub fn begin() {
    extern "C" fn forked() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        ORIGINAL.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the function lives as long as the program, and only stores a number.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// Returns whether this process is a fork of one with fiber's threads. Much cheaper than to ask the
/// kernel for the process's id.
#[inline]
pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// As [`is_forked`], and also of a process that the C library knows nothing of (`clone`).
pub fn is_any_fork() -> bool {
    let original = ORIGINAL.load(Ordering::Relaxed);
    is_forked() || (original != 0 && original != std::process::id())
}

/// Lets this fork use fiber: it runs a simulated session, which has threads of its own.
#[cfg(feature = "simulation")]
pub fn allow() {
    IS_FORKED.store(false, Ordering::Relaxed);
    ORIGINAL.store(0, Ordering::Relaxed);
}

/// Refuses an operation in a fork.
///
/// # Errors
/// [`Error::Forked`].
#[inline]
pub fn check() -> Result<()> {
    if is_forked() { Err(Error::Forked) } else { Ok(()) }
}
