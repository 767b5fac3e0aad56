//! Ctrl-Z: a user stops a program and lets it go on later.
//!
//! The terminal sends SIGTSTP to the program's own process group, in which no child is. So the
//! program stops its children, and each of them that has children does the same.

use std::sync::atomic::{AtomicBool, Ordering};

use fiber_core::Ignored;
use rustix::process::Signal;
use signal_hook::low_level::emulate_default_handler;
use tokio::signal::unix::{SignalKind, signal};

use super::guard::signal_groups;

/// Whether this process handles SIGTSTP.
static IS_HANDLED: AtomicBool = AtomicBool::new(false);

/// Stops the children with this process from now on, unless it ignores SIGTSTP.
pub(super) fn share_with_children() {
    if IS_HANDLED.swap(true, Ordering::AcqRel) {
        return;
    }
    let number = Signal::TSTP.as_raw();
    if Ignored::now().is_ok_and(|ignored| ignored.contains(number)) {
        return;
    }
    let Ok(mut stops) = signal(SignalKind::from_raw(number)) else {
        return tracing::warn!("SIGTSTP can't be handled: Ctrl-Z stops this process alone");
    };
    fiber_core::spawn_local(async move {
        while stops.recv().await.is_some() {
            signal_groups(Signal::TSTP);
            // SIGSTOP goes to this thread, so that the call returns only after a SIGCONT.
            let _ = emulate_default_handler(number);
            signal_groups(Signal::CONT);
        }
    });
}
