//! Frames that clients of this process hold back to send several together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of clients that hold a frame back.
static HOLDING_BACK: AtomicUsize = AtomicUsize::new(0);
static SEND_ALL: OnceLock<fn()> = OnceLock::new();

/// Sets the function that sends all frames that are held back. The first one stays.
pub(crate) fn set_send_all(send_all: fn()) {
    SEND_ALL.get_or_init(|| send_all);
}

/// Counts one more client that holds a frame back.
pub(crate) fn hold_back() {
    HOLDING_BACK.fetch_add(1, Ordering::Relaxed);
}

/// Counts one client less: its frame was sent or dropped.
pub(crate) fn release() {
    HOLDING_BACK.fetch_sub(1, Ordering::Relaxed);
}

/// Sends all frames that are held back, so that they arrive before the next request.
pub(crate) fn send_held_back() {
    if HOLDING_BACK.load(Ordering::Relaxed) > 0
        && let Some(send_all) = SEND_ALL.get()
    {
        send_all();
    }
}
