//! Panics of tasks, with their message and location.
//!
//! The caller of a task receives its panic, so the panic hook does not print it too. For all other
//! panics, the hook calls the previous hook.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use crate::error::excerpt;
use crate::stacks::{inside_border, user_code};

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<Panic>> = const { RefCell::new(None) };
    /// The message of the last panic that this module did not catch.
    static OTHER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A caught panic.
#[derive(Debug)]
pub struct Panic {
    /// The message and the location, in one line if the message is one line. Of a message of more
    /// than 64 KiB, the middle is left out.
    pub message: String,
    /// The addresses of the calls, if `RUST_BACKTRACE` is set.
    backtrace: Option<Backtrace>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Panic {
    fn of(info: &PanicHookInfo<'_>) -> Panic {
        let backtrace = Backtrace::capture();
        let captured = backtrace.status() == BacktraceStatus::Captured;
        Panic { message: located(info), backtrace: captured.then_some(backtrace) }
    }

    /// Returns whether there is a backtrace.
    pub fn has_backtrace(&self) -> bool {
        self.backtrace.is_some()
    }

    /// Returns the backtrace as text, if `RUST_BACKTRACE` is set. In a process that has not read its
    /// debug information yet, that takes some tenths of a second: somebody may wait for an answer
    /// first.
    pub fn backtrace(&self) -> Option<String> {
        let whole = self.backtrace.as_ref()?.to_string();
        let is_full = std::env::var_os("RUST_BACKTRACE").is_some_and(|style| style == "full");
        Some(excerpt(if is_full { whole } else { short(&whole) }))
    }
}

/// Returns the message and the location of a panic.
fn located(info: &PanicHookInfo<'_>) -> String {
    let message = message(info.payload());
    match info.location() {
        Some(place) => format!("{message} (at {place})"),
        None => message,
    }
}

/// Returns the calls of a backtrace that the standard library shows of a panic: from the panic to
/// the user's code.
fn short(backtrace: &str) -> String {
    // Each call has a line with its function, and one with its place if that is known.
    let mut calls: Vec<(&str, Option<&str>)> = Vec::new();
    for line in backtrace.lines() {
        let text = line.trim_start();
        match calls.last_mut() {
            Some((_, place)) if text.starts_with("at ") => *place = Some(line),
            _ => {
                let function = text.trim_start_matches(|c: char| c.is_ascii_digit());
                calls.push((function.strip_prefix(": ").unwrap_or(text), None));
            }
        }
    }
    let is_hook = |(function, _): &(&str, _)| function.contains("__rust_end_short_backtrace");
    let calls = &calls[calls.iter().position(is_hook).map_or(0, |hook| hook + 1)..];
    let functions: Vec<&str> = calls.iter().map(|(function, _)| *function).collect();
    let mut shown = String::new();
    for (number, (function, place)) in calls[..inside_border(&functions)].iter().enumerate() {
        let _ = writeln!(shown, "{number:4}: {function}");
        if let Some(place) = place {
            let _ = writeln!(shown, "{place}");
        }
    }
    shown
        + "note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace."
}

const NO_MESSAGE: &str = "a panic without a message";

/// Runs code of the user, and catches its panic.
///
/// # Errors
/// The panic.
pub fn catch<T>(code: impl FnOnce() -> T) -> Result<T, Panic> {
    watch();
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(|| user_code(code))).map_err(caught);
    CATCHING.set(outer);
    result
}

/// Has later panics seen by [`unwinding`].
pub fn watch() {
    // A process has one panic hook.
    static HOOK: Once = Once::new();
    HOOK.call_once(install);
}

/// Returns the message and the location of the panic that this thread unwinds from, if it does.
pub fn unwinding() -> Option<String> {
    if !std::thread::panicking() {
        return None;
    }
    let caught = CAUGHT.try_with(|caught| Some(caught.borrow().as_ref()?.message.clone()));
    let other = || OTHER.try_with(|other| other.borrow().clone()).ok().flatten();
    caught.ok().flatten().filter(|_| CATCHING.get()).or_else(other)
}

/// Returns the panic of a payload, which this drops.
fn caught(payload: Box<dyn Any + Send>) -> Panic {
    let text = message(&*payload);
    // A panic that the code has caught itself may have left its own, if it then resumed another.
    let panic = CAUGHT.take().filter(|panic| panic.message.starts_with(&text));
    let panic = panic.unwrap_or(Panic { message: text, backtrace: None });
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
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
            // A thread that ends may have lost it.
            let _ = OTHER.try_with(|other| other.replace(Some(located(info))));
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

    use super::{NO_MESSAGE, catch, short};

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any(Bomb);
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_is_a_panic_like_others() {
        let panic = catch(|| panic_any(Bomb)).unwrap_err();
        assert!(panic.message.starts_with(NO_MESSAGE), "{panic}");
    }

    #[test]
    fn a_payload_that_is_resumed_has_its_own_message() {
        let resumed = || {
            let _ = catch_unwind(|| panic!("another"));
            resume_unwind(Box::new("this one"))
        };
        let panic = catch(resumed).unwrap_err();
        assert_eq!(panic.message, "this one");
    }

    #[test]
    fn a_caught_panic_has_message_and_location() {
        let panic = catch(|| panic!("no {}", 7)).unwrap_err();
        assert!(
            panic.message.starts_with("no 7 (at ") && panic.message.contains("panics.rs"),
            "{panic}"
        );
        assert!(!panic.message.contains('\n'), "{panic}");
    }
    #[test]
    fn a_backtrace_shows_the_calls_between_the_panic_and_the_users_code() {
        let border = std::any::type_name_of_val(&crate::stacks::user_code::<fn(), ()>);
        let whole = format!(
            "   0: fiber_core::panics::of\n             at ./panics.rs:50:1\n   \
             1: std::sys::backtrace::__rust_end_short_backtrace\n  \
             12: core::panicking::panic_fmt\n      user::inlined\n             at ./a.rs:1:2\n  \
             13: user::work\n             at ./a.rs:3:4\n  14: {border}\n  15: fiber::run"
        );
        let calls = "   0: core::panicking::panic_fmt\n   1: user::inlined\n             at \
                     ./a.rs:1:2\n   2: user::work\n             at ./a.rs:3:4\nnote: Some details";
        assert!(short(&whole).starts_with(calls), "{}", short(&whole));
    }
}
