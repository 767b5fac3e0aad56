use std::error::Error as _;
use std::io;

use super::*;
use crate::panics::Panic;

fn panicked(backtrace: Option<&str>) -> Error {
    let panic =
        Panic { message: "no 7 (at a.rs:1:2)".into(), backtrace: backtrace.map(str::to_string) };
    Error::Task { function: "work", index: 3, failure: panic.into() }
}

#[test]
fn main_and_unwrap_print_the_message_of_an_error() {
    assert_eq!(format!("{:?}", Error::NotInitialised), Error::NotInitialised.to_string());
    assert_eq!(format!("{:?}", panicked(None)), "task 3 (`work`) panicked: no 7 (at a.rs:1:2)");
}

#[test]
fn a_backtrace_follows_the_message_in_debug_only() {
    let error = panicked(Some("   0: work"));
    assert_eq!(error.to_string(), "task 3 (`work`) panicked: no 7 (at a.rs:1:2)");
    assert_eq!(error.backtrace(), Some("   0: work"));
    assert_eq!(format!("{error:?}"), format!("{error}\n\nbacktrace of the panic:\n   0: work"));
}

#[test]
fn the_alternate_debug_shows_variant_and_fields() {
    assert_eq!(format!("{:#?}", Error::WouldDeadlock), "WouldDeadlock");
    let shown = format!("{:#?}", panicked(Some("   0: work")));
    for part in ["Task {", "function: \"work\"", "index: 3", "kind: Panicked", "   0: work"] {
        assert!(shown.contains(part), "`{part}` is missing in {shown}");
    }
}

#[test]
fn the_source_of_an_error_is_its_cause_as_a_value() {
    let refused = Error::system("no socket", io::Error::from(io::ErrorKind::AddrInUse));
    let cause = refused.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::AddrInUse));

    let exit = Exit::new(ExitReason::Signal(9), vec!["a line".into()]);
    let died = Error::Exited { name: "p".into(), exit };
    let reason = died.source().and_then(|cause| cause.downcast_ref::<ExitReason>());
    assert_eq!(reason, Some(&ExitReason::Signal(9)));
    assert!(died.to_string().ends_with("its last output:\n    a line"), "{died}");

    let failure = panicked(None);
    assert!(failure.source().is_some_and(|cause| cause.is::<Failure>()));
    assert!(Error::WouldDeadlock.source().is_none());
}

#[test]
fn a_time_limit_says_in_few_digits_what_it_leaves() {
    let left = |left| {
        let usual = Duration::from_nanos(387_237_660);
        Error::TimeLimit { function: "f", usual, left }.to_string()
    };
    let none = left(Duration::ZERO);
    assert!(none.contains("take 387ms") && none.contains("leaves no time for tasks"), "{none}");
    let some = left(Duration::from_nanos(1_549_999_999));
    assert!(some.contains("leaves 1s 500ms for tasks"), "{some}");
}
