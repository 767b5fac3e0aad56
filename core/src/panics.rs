//! Panics of tasks, with their message and location.
//!
//! The caller of a task receives its panic, so the panic hook does not print it too. For all other
//! panics, the hook calls the previous hook.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use crate::error::excerpt;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// A caught panic.
#[derive(Clone, Debug)]
pub struct Panic {
    /// The message and the location, in one line if the message is one line. Of a message of more
    /// than 64 KiB, the middle is left out.
    pub message: String,
    /// The backtrace, if `RUST_BACKTRACE` is set.
    pub backtrace: Option<String>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Panic {
    /// Prints the backtrace, if there is one. For a panic whose receiver gets the message only.
    pub fn print_backtrace(&self) {
        if let Some(backtrace) = &self.backtrace {
            eprintln!("the backtrace of the panic `{self}`:\n{backtrace}");
        }
    }

    fn of(info: &PanicHookInfo<'_>) -> Panic {
        let message = message(info.payload());
        let message = match info.location() {
            Some(place) => format!("{message} (at {place})"),
            None => message,
        };
        let backtrace = Backtrace::capture();
        let captured = backtrace.status() == BacktraceStatus::Captured;
        Panic { message, backtrace: captured.then(|| excerpt(backtrace.to_string())) }
    }
}

const NO_MESSAGE: &str = "a panic without a message";

/// Runs `body`, which catches its own panics, and adds message and location to a caught one.
///
/// # Errors
/// The panic.
pub fn catch<T>(body: impl FnOnce() -> Result<T, Box<dyn Any + Send>>) -> Result<T, Panic> {
    // A process has one panic hook.
    static HOOK: Once = Once::new();
    HOOK.call_once(install);
    let outer = CATCHING.replace(true);
    let result = body().map_err(caught);
    CATCHING.set(outer);
    result
}

/// Returns the panic of a payload, which this drops.
fn caught(payload: Box<dyn Any + Send>) -> Panic {
    let text = message(&*payload);
    // A panic that the body has caught itself may have left its own, if it then resumed another.
    let panic = CAUGHT.take().filter(|panic| panic.message.starts_with(&text));
    let panic = panic.unwrap_or(Panic { message: text, backtrace: None });
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Its destructor may panic without end.
        std::mem::forget(second);
        CAUGHT.take();
    }
    panic
}

/// Returns the message of a panic's payload. Of one of more than 64 KiB, the middle is left out.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.map_or_else(|| NO_MESSAGE.into(), excerpt)
}

fn install() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !CATCHING.get() {
            return previous(info);
        }
        if !aborts(info) {
            return CAUGHT.set(Some(Panic::of(info)));
        }
        previous(info);
        // The process aborts, so its error shows only the last printed lines, and a backtrace may
        // have pushed the message out of them. If this panic followed a caught one, that one is the
        // cause, and is not printed yet.
        let cause = CAUGHT.take().unwrap_or_else(|| Panic::of(info));
        eprintln!("fiber: this process aborts because a task panicked: {cause}");
    }));
}

/// Returns whether this panic aborts the process. With `panic = "abort"` all do; else those that
/// leave an `extern "C"` function, or a destructor that runs during another panic.
fn aborts(info: &PanicHookInfo<'_>) -> bool {
    // `PanicHookInfo::can_unwind` is not stable. The `Debug` text contains no text of the program,
    // so no other part of it can match.
    cfg!(panic = "abort") || format!("{info:?}").contains("can_unwind: false")
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any, resume_unwind};

    use super::{NO_MESSAGE, catch};

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any(Bomb);
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_is_a_panic_like_others() {
        let panic = catch(|| catch_unwind(|| panic_any(Bomb))).unwrap_err();
        assert!(panic.message.starts_with(NO_MESSAGE), "{panic}");
    }

    #[test]
    fn a_payload_that_is_resumed_has_its_own_message() {
        let resumed = || {
            let _ = catch_unwind(|| panic!("another"));
            resume_unwind(Box::new("this one"))
        };
        let panic = catch(|| catch_unwind(resumed)).unwrap_err();
        assert_eq!(panic.message, "this one");
    }

    #[test]
    fn a_caught_panic_has_message_and_location() {
        let panic = catch(|| catch_unwind(|| panic!("no {}", 7))).unwrap_err();
        assert!(
            panic.message.starts_with("no 7 (at ") && panic.message.contains("panics.rs"),
            "{panic}"
        );
        assert!(!panic.message.contains('\n'), "{panic}");
    }
}
