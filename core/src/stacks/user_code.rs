//! The border on a stack between the user's code and the code that calls it.

/// The part of a function's name that tells the border: here, and where the standard library calls
/// `main` and the functions of threads.
const BORDER: &str = "__rust_begin_short_backtrace";

/// Calls code of the user. Stacks and backtraces are shown down to this call.
///
/// All code of fiber that calls the user's calls it by this function: no list of fiber's crates and
/// functions could stay complete. The standard library knows the name, too, and cuts the backtraces
/// that it prints.
#[inline(never)]
pub fn __rust_begin_short_backtrace<F: FnOnce() -> T, T>(code: F) -> T {
    let result = code();
    // A last call would take the place of this one on the stack.
    std::hint::black_box(());
    result
}

/// Returns whether a function is the border of fiber, not that of the standard library.
pub(crate) fn is_border_of_fiber(function: &str) -> bool {
    function.contains(BORDER) && !function.starts_with("std::")
}

/// Returns how many of these functions, the innermost first, are the user's or called by them. If
/// there is no border, all are; at least one is.
pub(crate) fn inside_border(functions: &[&str]) -> usize {
    let border = functions.iter().position(|function| function.contains(BORDER));
    let (inside, outside) = functions.split_at(border.unwrap_or(functions.len()));
    let caller = outside.get(1);
    let is_glue = |function: &&&str| {
        let closure_of = function.rsplit_once("::").filter(|(_, last)| last.starts_with('{'));
        closure_of.is_some_and(|(outer, _)| Some(&outer) == caller)
            || function.contains("core::ops::function::Fn") && function.contains("::call")
            || function.starts_with("<core::pin::Pin<")
    };
    let glue = inside.iter().rev().take_while(is_glue).count();
    (inside.len() - glue).max(1).min(functions.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_by_which_the_user_is_called_are_outside() {
        let border = std::any::type_name_of_val(&__rust_begin_short_backtrace::<fn(), ()>);
        let own = |functions: &[&str]| inside_border(functions);
        assert!(is_border_of_fiber(border) && !is_border_of_fiber("user::work"));
        assert_eq!(own(&["std::sleep", "user::work", border, "fiber::run"]), 2);
        let glue = ["user::work", "core::ops::function::Fn::call", "fiber::run::{{closure}}"];
        assert_eq!(own(&[&glue[..], &[border, "fiber::run", "user::main"]].concat()), 1);
        let future = ["user::work::{closure#0}", "<core::pin::Pin<P> as Future>::poll"];
        let polled = ["fiber::run::{closure#0}", border, "fiber::run"];
        assert_eq!(own(&[&future[..], &polled].concat()), 1);
        // The user's `main` is outside, because it has called `init`.
        assert_eq!(own(&["user::main::{{closure}}", border, "fiber::run", "user::main"]), 1);
        // The innermost border counts.
        assert_eq!(own(&["user::work", border, "fiber::run", "user::before", border]), 1);
        assert_eq!(own(&["user::work", "user::main"]), 2);
        assert_eq!((own(&[border]), own(&[])), (1, 0));
    }
}
