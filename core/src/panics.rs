//! Panics of tasks, with the place where they happened.
//!
//! A task's panic goes to its caller, so it is not printed as well. The hook stays out of the way
//! of all others.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Clone, Debug)]
pub struct Panic {
    /// Its message and its place, in one line if the message is one.
    pub message: String,
    /// The backtrace, if `RUST_BACKTRACE` asks for it.
    pub backtrace: Option<String>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Panic {
    /// Prints the backtrace, if there is one, for a panic whose message goes where no backtrace
    /// can.
    pub fn print_backtrace(&self) {
        if let Some(backtrace) = &self.backtrace {
            eprintln!("the backtrace of the panic `{self}`:\n{backtrace}");
        }
    }

    fn of(info: &PanicHookInfo<'_>) -> Panic {
        let message = info.payload_as_str().unwrap_or(NO_MESSAGE);
        let message = match info.location() {
            Some(place) => format!("{message} (at {place})"),
            None => message.to_string(),
        };
        let backtrace = Backtrace::capture();
        let captured = backtrace.status() == BacktraceStatus::Captured;
        Panic { message, backtrace: captured.then(|| backtrace.to_string()) }
    }
}

const NO_MESSAGE: &str = "a panic without a message";

/// Runs `body`, which catches its own panics, and returns a caught one with its message and place.
///
/// # Errors
/// The panic.
pub fn catch<T>(body: impl FnOnce() -> Result<T, Box<dyn Any + Send>>) -> Result<T, Panic> {
    static HOOK: Once = Once::new();
    HOOK.call_once(install);
    let outer = CATCHING.replace(true);
    let result = body();
    CATCHING.set(outer);
    result.map_err(|payload| {
        CAUGHT.take().unwrap_or_else(|| Panic { message: message(&*payload), backtrace: None })
    })
}

/// The message of a panic's payload.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| NO_MESSAGE.into())
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
        // Nothing catches this one, so the last printed lines are all that is left of it. A
        // backtrace has pushed the message out of them. If it followed another panic, that is the
        // cause, and nothing has printed it.
        let cause = CAUGHT.take().unwrap_or_else(|| Panic::of(info));
        eprintln!("fiber: this process aborts because a task panicked: {cause}");
    }));
}

/// Whether the process ends by this panic: as all do with `panic = "abort"`, and some in every
/// program, for example one that leaves an `extern "C"` function, or a destructor that runs because
/// of another.
fn aborts(info: &PanicHookInfo<'_>) -> bool {
    // `PanicHookInfo::can_unwind` is not stable. Its `Debug` shows no text of the program's own
    // that could be mistaken.
    cfg!(panic = "abort") || format!("{info:?}").contains("can_unwind: false")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::catch;

    #[test]
    fn a_panic_is_told_with_its_place() {
        let told = catch(|| catch_unwind(|| panic!("no {}", 7))).unwrap_err();
        assert!(
            told.message.starts_with("no 7 (at ") && told.message.contains("panics.rs"),
            "{told}"
        );
        assert!(!told.message.contains('\n'), "{told}");
    }
}
