use std::error::Error as _;
use std::io;

use super::*;

fn panicked(backtrace: Option<&str>) -> Error {
    // As other builds have written it into journals.
    let failure = serde_json::json!({
        "kind": "Panicked", "message": "no 7 (at a.rs:1:2)", "backtrace": backtrace
    });
    let failure = serde_json::from_value(failure).unwrap();
    Error::Task { function: "work", index: 3, failure }
}

#[test]
fn main_and_unwrap_print_the_message_of_an_error() {
    assert_eq!(format!("{:?}", Error::NotInitialized), Error::NotInitialized.to_string());
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
fn an_error_shows_its_causes_and_has_them_as_values_but_no_source() {
    let refused = Error::system("no socket", io::Error::from(io::ErrorKind::AddrInUse));
    assert_eq!(refused.to_string(), "no socket: address in use");
    assert!(refused.source().is_none());
    let Error::System { cause, .. } = refused else { unreachable!() };
    let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    assert_eq!(kind, Some(io::ErrorKind::AddrInUse));

    let exit = Exit::new(ExitReason::Signal(9), vec!["a line".into()]);
    let died = Error::Exited { name: "p".into(), exit };
    assert!(died.to_string().ends_with("its last output:\n    a line"), "{died}");
    assert!(died.source().is_none());
    assert!(panicked(None).source().is_none());
}

#[test]
fn a_task_that_ran_past_its_timeout_is_no_other_death() {
    let limit = Duration::from_secs(2);
    let exit = |reason| Exit::new(reason, Vec::new());
    let once = Error::abandoned("work", 3, 1, exit(ExitReason::TaskTimedOut(limit)));
    assert!(matches!(once, Error::TaskTimedOut { deaths: 1, .. }), "{once:#?}");
    assert!(once.to_string().starts_with("task 3 (`work`) timed out: its worker "), "{once}");
    let often = Error::abandoned("work", 3, 4, exit(ExitReason::TaskTimedOut(limit)));
    assert!(often.to_string().contains("was abandoned: 4 of its workers died"), "{often}");
    let other = Error::abandoned("work", 3, 1, exit(ExitReason::Signal(9)));
    assert!(matches!(other, Error::WorkerDied { .. }), "{other:#?}");
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
