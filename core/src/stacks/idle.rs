//! The threads that tell the user nothing: fiber's own, and idle ones of async runtimes.

use super::types::{ThreadStack, ThreadState};
use super::{TAKES_STACKS, is_border_of_fiber};

/// The beginning of the names of fiber's threads.
const OWN: &str = "fiber-";

/// Returns whether a thread of this name is fiber's own. Others of fiber's run the user's code.
pub fn is_of_fiber(name: &str) -> bool {
    let runs_user_code = ["fiber-task", "fiber-feed"].iter().any(|own| name.starts_with(own));
    name.starts_with(OWN) && !runs_user_code
}

/// The crates of async runtimes, with an executor or a wait of their own.
const RUNTIMES: [&str; 3] = ["actix_rt", "mio", "tokio"];
/// The crates that they call, and that call them.
const OTHERS: [&str; 6] = ["alloc", "core", "parking_lot", "parking_lot_core", "rustix", "std"];

impl ThreadStack {
    /// Returns whether this is a thread of fiber or of an async runtime that has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        if is_of_fiber(&self.name) && self.problem.as_deref() == Some(TAKES_STACKS) {
            return true;
        }
        let frames = self.frames.iter().filter(|frame| frame.in_program);
        let functions: Vec<_> = frames.filter_map(|frame| frame.function.as_deref()).collect();
        let has_nothing_to_do = if self.name.starts_with(OWN) {
            // Without symbols, only the thread's name is known.
            !functions.iter().any(|function| is_border_of_fiber(function))
                && (is_of_fiber(&self.name) || !functions.is_empty())
        } else {
            waits_for_work(&functions)
        };
        self.state == ThreadState::Sleeping && self.problem.is_none() && has_nothing_to_do
    }
}

/// Returns whether these functions, the innermost first, are those of an async runtime alone.
fn waits_for_work(functions: &[&str]) -> bool {
    let has_runtime = |functions: &[&str]| {
        functions.iter().copied().flat_map(crates).any(|one| RUNTIMES.contains(&one))
    };
    // A function of the C library has no crate; nor has one in its place, as worlds have them. What
    // it calls for a runtime is not the user's.
    let system = functions.iter().position(|function| !function.contains("::"));
    let callers = &functions[system.unwrap_or(0)..];
    let functions = if has_runtime(callers) { callers } else { functions };
    let mut crates = functions.iter().copied().flat_map(crates);
    has_runtime(functions) && crates.all(|one| RUNTIMES.contains(&one) || OTHERS.contains(&one))
}

/// Returns the crates that a function's name has: those of its type and its trait, too.
fn crates(function: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    function.match_indices("::").filter_map(move |(end, _)| {
        let before = &function[..end];
        let start = before.rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
        (start < end && !before[..start].ends_with("::")).then(|| &before[start..])
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stacks::Frame;

    fn thread(name: &str, functions: &[&str]) -> ThreadStack {
        let frame = |function: &&str| Frame {
            function: (!function.is_empty()).then(|| function.to_string()),
            file: None,
            line: None,
            module: "program".into(),
            offset: 1,
            in_program: true,
            inlined: false,
        };
        ThreadStack {
            tid: 12,
            name: name.into(),
            state: ThreadState::Sleeping,
            waits_in: None,
            cpu: Duration::ZERO,
            frames: functions.iter().map(frame).collect(),
            truncated: false,
            problem: None,
        }
    }

    #[test]
    fn threads_of_fiber_and_of_runtimes_are_idle_unless_they_run_code_of_the_user() {
        let waits = ["<parking_lot::Condvar as core::fmt::Debug>::fmt", "tokio::park::{{closure}}"];
        let closure = ["std::thread::park", "user::main::{{closure}}"];
        let of_user = ["<user::Actor as actix_rt::Handler>::handle", "tokio::task::poll"];
        let replaced = ["fiber_world::epoll::wait", "epoll_wait", "mio::Poll::poll", "tokio::park"];
        let sorts = ["user::compare", "qsort", "user::sort", "tokio::task::poll"];
        let border = std::any::type_name_of_val(&crate::stacks::user_code::<fn(), ()>);
        let called = [of_user[0], border, "fiber_runtime::run"];
        let base = "std::sys::backtrace::__rust_begin_short_backtrace";
        for (name, functions, is_idle) in [
            (
                "fiber-runtime",
                &["mio::poll::Poll::poll", "fiber_runtime::runtime::start"][..],
                true,
            ),
            ("tokio-rt-worker", &waits, true),
            ("fiber-runtime", &[""], true),
            ("tokio-rt-worker", &of_user, false),
            ("fiber-runtime", &called, false),
            ("fiber-task-1", &[""], false),
            ("fiber-task-1", &["fiber_pool::wait", base], true),
            ("fiber-task-1", &called, false),
            ("tokio-rt-worker", &replaced, true),
            ("tokio-rt-worker", &sorts, false),
            ("mine", &closure, false),
            ("mine", &["std::thread::park"], false),
        ] {
            let thread = thread(name, functions);
            assert_eq!(thread.is_idle(), is_idle, "{thread}");
        }
        let waits = thread("tokio-rt-worker", &waits);
        let runs = ThreadStack { state: ThreadState::Running, ..waits };
        assert!(!runs.is_idle());
    }

    #[test]
    fn a_function_has_the_crates_of_its_type_and_of_its_trait() {
        for (function, found) in [
            ("tokio::runtime::park::{{closure}}", &["tokio"][..]),
            ("<a::B<c::D> as e::F>::g", &["a", "c", "e"]),
            ("<T as core::convert::Into<U>>::into", &["core"]),
            ("__libc_start_main", &[]),
        ] {
            assert_eq!(crates(function).collect::<Vec<_>>(), found, "{function}");
        }
    }
}
