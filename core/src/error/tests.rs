use super::*;

fn panicked(backtrace: Option<&str>) -> Error {
    let panic =
        Panic { message: "no 7 (at a.rs:1:2)".into(), backtrace: backtrace.map(str::to_string) };
    Error::Task { function: "work", index: 3, failure: panic.into() }
}

#[test]
fn main_and_unwrap_print_what_an_error_says() {
    assert_eq!(format!("{:?}", Error::NotInitialised), Error::NotInitialised.to_string());
    assert_eq!(format!("{:?}", panicked(None)), "task 3 (`work`) panicked: no 7 (at a.rs:1:2)");
}

#[test]
fn a_backtrace_is_no_part_of_the_message_and_follows_it_in_debug() {
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
