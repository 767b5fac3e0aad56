//! Panics of tasks, with the place where they happened.
//!
//! A task's panic goes to its caller, so it is not printed as well. The hook stays out of the way of all others.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body`, which catches its own panics, and puts a caught one into words: message, place and, if
/// `RUST_BACKTRACE` asks for it, the backtrace.
///
/// # Errors
/// The panic in words.
pub fn catch<T>(body: impl FnOnce() -> Result<T, Box<dyn Any + Send>>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(install);
    let outer = CATCHING.replace(true);
    let result = body();
    CATCHING.set(outer);
    result.map_err(|payload| CAUGHT.take().unwrap_or_else(|| message(&*payload)))
}

/// The message of a panic's payload.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".into())
}

fn install() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !CATCHING.get() {
            return previous(info);
        }
        let mut text = message_of(info);
        if let Some(place) = info.location() {
            text.push_str(&format!(" (at {place})"));
        }
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            text.push_str(&format!("\n{backtrace}"));
        }
        CAUGHT.set(Some(text));
    }));
}

fn message_of(info: &panic::PanicHookInfo<'_>) -> String {
    info.payload_as_str().unwrap_or("a panic without a message").to_string()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::catch;

    #[test]
    fn a_panic_is_told_with_its_place() {
        let told = catch(|| catch_unwind(|| panic!("no {}", 7))).unwrap_err();
        assert!(told.starts_with("no 7 (at ") && told.contains("panics.rs"), "{told}");
    }
}
